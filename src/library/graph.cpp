#include "octet/graph.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "base/error.h"
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
    constexpr auto kEnd = static_cast<double>(Limits::max() / 2 + 1) * 2;  // of integers
    if (Limits::is_integer && !(x >= kLow && x < kEnd && x == std::trunc(x)))
      throw Error(ErrorCode::invalid_argument, "'{}': expected integers from {} to {}, got {}",
                  name, Limits::lowest(), Limits::max(), x);
    const T value = static_cast<T>(x);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

// As GraphRun reads an input of this type.
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
  std::vector<int> scales;  // by value; empty: none
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
  function.state_ = std::make_shared<State>(State{read_graph(text), {}});
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

std::vector<int64_t> GraphFunction::shape(GraphValue value) const {
  expect_value(state_->graph, value.id, "shape");
  return state_->graph.type(value.id).stored_shape();
}

std::string GraphFunction::text() const {
  return print(state_->graph);
}

GraphFunction GraphFunction::passes(const std::vector<std::string>& names) const {
  GraphFunction result;
  result.state_ = std::make_shared<State>(State{run_passes(state_->graph, names), {}});
  return result;
}

GraphFunction GraphFunction::scalify(const ScalifySettings& settings) const {
  const Graph& graph = state_->graph;
  Scalified scalified = octet::scalify(
      graph, scalify_options(graph, settings.rounding, settings.input_rms, settings.input_scales));
  GraphFunction result;
  result.state_ =
      std::make_shared<State>(State{std::move(scalified.graph), std::move(scalified.scale)});
  return result;
}

int GraphFunction::scale(GraphValue value) const {
  expect_value(state_->graph, value.id, "scale");
  const auto id = static_cast<size_t>(value.id);  // of a node behind scalify() there is none
  return id < state_->scales.size() ? state_->scales[id] : 0;
}

int GraphFunction::scale(const std::string& output) const {
  const GraphOutput* found = state_->graph.find_output(output);
  if (found == nullptr)
    throw Error(ErrorCode::invalid_argument, "'{}' is no output of the graph", output);
  return scale(GraphValue{found->value});
}

class CompiledGraph::Impl {
 public:
  Impl(const Graph& graph, const Machine& machine)
      : run_(graph, open_backend(request_of(machine))) {}

  std::map<std::string, GraphArray> operator()(const std::map<std::string, GraphArray>& inputs) {
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

 private:
  GraphRun run_;
};

CompiledGraph::CompiledGraph(const GraphFunction& function, const Machine& machine)
    : impl_(std::make_unique<Impl>(function.state_->graph, machine)) {}
CompiledGraph::~CompiledGraph() = default;
CompiledGraph::CompiledGraph(CompiledGraph&&) noexcept = default;
CompiledGraph& CompiledGraph::operator=(CompiledGraph&&) noexcept = default;

std::map<std::string, GraphArray> CompiledGraph::operator()(
    const std::map<std::string, GraphArray>& inputs) {
  return (*impl_)(inputs);
}

}  // namespace octet
