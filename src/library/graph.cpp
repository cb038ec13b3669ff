#include "octet/graph.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "ir/ops/axis_scales.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "library/graph_run.h"
#include "library/public_types.h"
#include "library/user_graph.h"
#include "passes/driver.h"

namespace octet {
namespace {

template <typename T>
std::string packed(const GraphArray& array, const std::string& name) {
  std::string bytes;
  for (const double x : array.values) {
    using Limits = std::numeric_limits<T>;
    constexpr auto kLow = static_cast<double>(Limits::lowest());
    constexpr auto kHalf = Limits::max() / 2 + 1;
    constexpr auto kEnd = static_cast<double>(kHalf) * 2;  // of integers
    if (Limits::is_integer && !(x >= kLow && x < kEnd && x == std::trunc(x)))
      throw Error(ErrorCode::invalid_argument, "'{}': expected integers from {} to {}, got {}",
                  name, Limits::lowest(), Limits::max(), x);
    const T value = static_cast<T>(x);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

// The array as GraphRun reads an input of this type.
NumpyArray numpy_array(const GraphArray& array, const std::string& name, Dtype dtype) {
  const auto n = static_cast<size_t>(std::max<int64_t>(0, n_elems(array.shape)));
  if (array.values.size() != n)
    throw Error(ErrorCode::invalid_argument, "'{}': expected {} values by its shape {}, got {}",
                name, n, to_string(array.shape), array.values.size());
  switch (dtype) {
    case Dtype::f32:
    case Dtype::bf16:
    case Dtype::fp16:
      return {"<f8", array.shape, packed<double>(array, name)};
    case Dtype::boolean:
      return {"|b1", array.shape, packed<uint8_t>(array, name)};
    case Dtype::int8:
      return {"|i1", array.shape, packed<int8_t>(array, name)};
    case Dtype::i32:
    case Dtype::u32:
    case Dtype::i16:
    case Dtype::u16:
      return {"<i8", array.shape, packed<int64_t>(array, name)};
    default:
      return {"|u1", array.shape, packed<uint8_t>(array, name)};
  }
}

}  // namespace

struct GraphFunction::State {
  Graph graph;
  std::vector<int> scales = {};                         // by value; empty: none
  std::vector<std::vector<int64_t>> scale_shapes = {};  // likewise
  std::vector<std::string> scaled_inputs = {}, scaled_outputs = {};
};

GraphFunction::GraphFunction(const std::string& name) : state_(std::make_shared<State>()) {
  state_->graph.name = name;
}

GraphFunction::State& GraphFunction::own() {
  if (state_.use_count() > 1) state_ = std::make_shared<State>(*state_);
  return *state_;
}

GraphFunction GraphFunction::parse(const std::string& text) {
  GraphFunction function;
  function.state_ = std::make_shared<State>(State{.graph = read_graph(text)});
  return function;
}

GraphValue GraphFunction::input(const std::string& name, const std::vector<int64_t>& shape,
                                const std::string& dtype) {
  return {add_input(own().graph, InputKind::batch, name, dtype, shape)};
}

GraphValue GraphFunction::parameter(const std::string& name, const std::vector<int64_t>& shape) {
  return {add_input(own().graph, InputKind::parameter, name, "real", shape)};
}

std::vector<GraphValue> GraphFunction::nodes(const std::string& op,
                                             const std::vector<GraphValue>& operands,
                                             const std::string& attributes) {
  const OpDef* def = find_op(op);
  if (def == nullptr) throw Error(ErrorCode::invalid_argument, "expected an op, got {}", op);
  Graph& graph = own().graph;
  std::vector<std::string> given;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool is_named = i < def->operands.size() && def->operands[i].optional;
    if (operands[i].id < 0 && is_named) continue;
    expect_value(graph, operands[i].id, op);
    given.push_back(is_named ? fmt::format("{} = %{}", def->operands[i].name, operands[i].id)
                             : fmt::format("%{}", operands[i].id));
  }
  std::vector<GraphValue> results;
  for (const ValueId id : append_node(graph, fmt::format("%{} = {}({}) {{{}}}", graph.values.size(),
                                                         op, fmt::join(given, ", "), attributes)))
    results.push_back({id});
  return results;
}

GraphValue GraphFunction::node(const std::string& op, const std::vector<GraphValue>& operands,
                               const std::string& attributes) {
  return nodes(op, operands, attributes).front();
}

void GraphFunction::output(const std::string& name, GraphValue value) {
  add_output(own().graph, name, value.id);
}

void GraphFunction::erase_output(const std::string& name) {
  octet::erase_output(own().graph, name);
}

GraphValue GraphFunction::input_value(const std::string& name) const {
  const GraphInput* found = state_->graph.find_input(name);
  if (found == nullptr)
    throw Error(ErrorCode::invalid_argument, "'{}' is no input of the graph", name);
  return {found->value};
}

GraphValue GraphFunction::output_value(const std::string& name) const {
  const GraphOutput* found = state_->graph.find_output(name);
  if (found == nullptr)
    throw Error(ErrorCode::invalid_argument, "'{}' is no output of the graph", name);
  return {found->value};
}

GraphValue GraphFunction::delayed_rescale(GraphValue x, const std::string& site,
                                          const std::string& norm, const std::string& direction) {
  return {octet::delayed_rescale(own().graph, x.id, site, norm, direction)};
}

GraphValue GraphFunction::axis_rescale(GraphValue x, const std::string& granularity,
                                       const std::string& norm) {
  return {octet::axis_rescale(own().graph, x.id, granularity, norm)};
}

GraphValue GraphFunction::periodic_rescale(GraphValue x, const std::string& site, int64_t calls,
                                           const std::string& norm) {
  return {octet::periodic_rescale(own().graph, x.id, site, calls, norm)};
}

namespace {

std::vector<GraphValue> graph_values(const ValueIds& ids) {
  std::vector<GraphValue> values;
  for (const ValueId id : ids) values.push_back({id});
  return values;
}

}  // namespace

GraphValue GraphFunction::custom_scale(
    const std::function<GraphValue(const std::vector<GraphValue>& inputs)>& f,
    const std::vector<GraphValue>& inputs, const ScaleProgram& rule,
    const std::vector<ScaleProgram>& gradients) {
  const auto on_ids = [](const auto& program) {
    return [program](const ValueIds& ids) { return program(graph_values(ids)).id; };
  };
  ValueIds ids;
  for (const GraphValue value : inputs) ids.push_back(value.id);
  std::vector<ScaleRuleOnIds> rules;
  rules.reserve(gradients.size());
  for (const ScaleProgram& program : gradients) rules.emplace_back(on_ids(program));
  return {scaled_by(own().graph, on_ids(f), ids, on_ids(rule), rules)};
}

void GraphFunction::debug(const std::string& name, GraphValue value) {
  add_debug_output(own().graph, name, value.id);
}

std::vector<int64_t> GraphFunction::shape(GraphValue value) const {
  expect_value(state_->graph, value.id, "shape");
  return state_->graph.type(value.id).stored_shape();
}

std::string GraphFunction::text() const {
  return print(state_->graph);
}

GraphFunction GraphFunction::passes(const std::vector<std::string>& names) const {
  GraphFunction result;
  result.state_ = std::make_shared<State>(State{.graph = run_passes(state_->graph, names),
                                                .scaled_inputs = state_->scaled_inputs,
                                                .scaled_outputs = state_->scaled_outputs});
  return result;
}

GraphFunction GraphFunction::scalify(const ScalifySettings& settings) const {
  const Graph& graph = state_->graph;
  Scalified scalified = octet::scalify(graph, scalify_options(graph, settings));
  std::vector<std::vector<int64_t>> shapes = scale_shapes(scalified);
  GraphFunction result;
  result.state_ = std::make_shared<State>(State{.graph = std::move(scalified.graph),
                                                .scales = std::move(scalified.scale),
                                                .scale_shapes = std::move(shapes),
                                                .scaled_inputs = settings.scaled_inputs,
                                                .scaled_outputs = settings.scaled_outputs});
  return result;
}

int GraphFunction::scale(GraphValue value) const {
  expect_value(state_->graph, value.id, "scale");
  const auto id = static_cast<size_t>(value.id);  // of a node behind scalify() there is none
  return id < state_->scales.size() ? state_->scales[id] : 0;
}

int GraphFunction::scale(const std::string& output) const {
  return scale(output_value(output));
}

std::vector<int64_t> GraphFunction::scale_shape(GraphValue value) const {
  expect_value(state_->graph, value.id, "scale_shape");
  const auto id = static_cast<size_t>(value.id);
  return id < state_->scale_shapes.size() ? state_->scale_shapes[id] : std::vector<int64_t>{};
}

GraphArray ScaledArray::value() const {
  GraphArray result = data;
  for (double& x : result.values) x *= scale;
  if (scales.values.empty()) return result;
  if (!ops::scale::axis_granularity(scales.shape, data.shape))
    throw Error(ErrorCode::invalid_argument,
                "scales: expected [R,1] or [1,C] beside data of shape {}, got {}",
                to_string(data.shape), to_string(scales.shape));
  const bool is_of_rows = scales.shape[1] == 1 && scales.shape[0] == data.shape[0];
  const auto width = static_cast<size_t>(std::max<int64_t>(1, data.shape[1]));
  for (size_t i = 0; i < result.values.size(); ++i)
    result.values[i] *= scales.values.at(is_of_rows ? i / width : i % width);
  return result;
}

ScaledArray scaled(const GraphArray& array) {
  double sum = 0;
  for (const double x : array.values) sum += x * x;
  const double rms = std::sqrt(sum / static_cast<double>(std::max<size_t>(1, array.values.size())));
  ScaledArray result{array};
  if (!(rms > 0) || !std::isfinite(rms)) return result;
  result.scale = std::exp2(std::clamp(std::ceil(std::log2(rms) - 0.5), -126.0, 127.0));
  for (double& x : result.data.values) x /= result.scale;
  return result;
}

namespace {

// Throws Error{invalid_argument} for a scale that f32 has not as a power of two.
void expect_power_of_two(const std::string& name, double scale) {
  int exponent = 0;
  if (!(std::frexp(scale, &exponent) == 0.5 && exponent > -126 && exponent <= 128))
    throw Error(ErrorCode::invalid_argument, "'{}': expected a power of two as scale, got {}", name,
                scale);
}

// What "NAME.scale", of this shape, takes of an array.
GraphArray scales_of(const std::string& name, const ScaledArray& array, const Shape& shape) {
  GraphArray result{shape, array.scales.values};
  if (result.values.empty()) {
    result.values.assign(static_cast<size_t>(n_elems(shape)), 1);
  } else {
    result.shape = array.scales.shape;
  }
  for (double& scale : result.values) expect_power_of_two(name, scale *= array.scale);
  return result;
}

}  // namespace

class CompiledGraph::Impl {
 public:
  Impl(const GraphFunction::State& function, const Machine& machine)
      : run_(function.graph, open_backend(request_of(machine))),
        scaled_inputs_(function.scaled_inputs.begin(), function.scaled_inputs.end()),
        scaled_outputs_(function.scaled_outputs.begin(), function.scaled_outputs.end()) {}

  std::map<std::string, GraphArray> operator()(std::map<std::string, GraphArray> inputs) {
    for (const std::string& name : scaled_inputs_) {
      if (inputs.contains(name))
        inputs.try_emplace(scale_name(name), scales_of(name, {}, scale_shape(name)));
    }
    auto results = run(inputs);
    hand_on_debugged(results);
    return results;
  }

  std::map<std::string, ScaledArray> scaled(const std::map<std::string, ScaledArray>& inputs) {
    std::map<std::string, GraphArray> arrays;
    for (const auto& [name, array] : inputs) {
      const bool is_scaled = scaled_inputs_.contains(name);
      arrays[name] = is_scaled ? array.data : array.value();
      if (is_scaled) arrays[scale_name(name)] = scales_of(name, array, scale_shape(name));
    }
    std::map<std::string, GraphArray> outputs = (*this)(std::move(arrays));
    std::map<std::string, ScaledArray> results;
    for (const std::string& name : scaled_outputs_) {
      const auto scale = outputs.find(scale_name(name));
      if (scale == outputs.end()) continue;
      if (scale->second.shape.empty()) {
        results[name].scale = scale->second.values[0];
      } else {
        results[name].scales = std::move(scale->second);
      }
      outputs.erase(scale);
    }
    for (auto& [name, array] : outputs) results[name].data = std::move(array);
    return results;
  }

  Debug debug;

 private:
  Shape scale_shape(const std::string& name) const {
    const GraphInput* input = run_.graph().find_input(scale_name(name));
    return input == nullptr ? Shape{} : run_.graph().type(input->value).shape;
  }

  void hand_on_debugged(std::map<std::string, GraphArray>& results) {
    for (const GraphOutput& output : run_.graph().outputs) {
      if (!output.name.starts_with(kDebugOutput)) continue;
      const auto scale = results.find(scale_name(output.name));
      if (scale == results.end()) continue;
      const std::string name = output.name.substr(kDebugOutput.size());
      if (debug) debug(name, {results.at(output.name), scale->second.values[0]});
      results.erase(scale);
      results.erase(output.name);
    }
  }

  std::map<std::string, GraphArray> run(const std::map<std::string, GraphArray>& inputs) {
    NumpyArrays arrays;
    for (const auto& [name, array] : inputs) {
      const GraphInput* input = run_.graph().find_input(name);
      const Dtype dtype = input == nullptr ? Dtype::f32 : run_.graph().type(input->value).dtype;
      arrays[name] = numpy_array(array, name, dtype);
    }
    std::map<std::string, GraphArray> results;
    for (const auto& [name, array] : run_(arrays)) {
      GraphArray& result = results[name];
      result.shape = array.shape;
      for (size_t i = 0; i < static_cast<size_t>(n_elems(array.shape)); ++i)
        result.values.push_back(number_at(array, i));
    }
    return results;
  }

  GraphRun run_;
  std::set<std::string> scaled_inputs_, scaled_outputs_;
};

CompiledGraph::CompiledGraph(const GraphFunction& function, const Machine& machine)
    : impl_(std::make_unique<Impl>(*function.state_, machine)) {}
CompiledGraph::~CompiledGraph() = default;
CompiledGraph::CompiledGraph(CompiledGraph&&) noexcept = default;
CompiledGraph& CompiledGraph::operator=(CompiledGraph&&) noexcept = default;

std::map<std::string, GraphArray> CompiledGraph::operator()(
    const std::map<std::string, GraphArray>& inputs) {
  return (*impl_)(inputs);
}

std::map<std::string, ScaledArray> CompiledGraph::scaled(
    const std::map<std::string, ScaledArray>& inputs) {
  return impl_->scaled(inputs);
}

void CompiledGraph::on_debug(Debug debug) {
  impl_->debug = std::move(debug);
}

}  // namespace octet
