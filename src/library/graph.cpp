#include "octet/graph.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "formats/codec.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "library/graph_run.h"
#include "library/public_types.h"
#include "passes/driver.h"
#include "passes/scalify/scalify.h"

namespace octet {
namespace {

template <typename To>
To value_at(const std::string& bytes, size_t i) {
  To value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

// As GraphRun writes an output.
double number(const NumpyArray& array, size_t i) {
  const char kind = array.descr[1], width = array.descr[2];
  const std::string& bytes = array.bytes;
  if (kind == 'f' && width == '2')
    return static_cast<double>(decode<Dtype::fp16>(value_at<uint16_t>(bytes, i)));
  if (kind == 'f') return static_cast<double>(value_at<float>(bytes, i));
  if (kind == 'i') {
    return width == '1'   ? value_at<int8_t>(bytes, i)
           : width == '2' ? value_at<int16_t>(bytes, i)
                          : value_at<int32_t>(bytes, i);
  }
  return width == '1'   ? value_at<uint8_t>(bytes, i)
         : width == '2' ? value_at<uint16_t>(bytes, i)
                        : value_at<uint32_t>(bytes, i);
}

template <typename T>
std::string packed(const GraphArray& array, const std::string& name) {
  std::string bytes;
  for (const double x : array.values) {
    const T value = static_cast<T>(x);
    if (static_cast<double>(value) != x && std::is_integral_v<T>)
      throw Error(ErrorCode::invalid_argument, "'{}': expected integers, got {}", name, x);
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
  Graph graph = parse_graph(text);
  try {
    verify(graph);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, "graph: {}", error.what());
  }
  function.state_ = std::make_shared<State>(State{std::move(graph), {}});
  return function;
}

namespace {

GraphValue add_input(Graph& graph, InputKind kind, const std::string& name, const Shape& shape,
                     const std::string& dtype) {
  const auto type = dtype_from_name(dtype);
  if (!type) throw Error(ErrorCode::invalid_argument, "expected a dtype, got {}", dtype);
  return {Builder(graph).input(kind, name, {*type, shape})};
}

void expect_value(const Graph& graph, GraphValue value, std::string_view what) {
  if (value.id >= 0 && value.id < std::ssize(graph.values)) return;
  throw Error(ErrorCode::invalid_argument, "{}: expected a value of the graph, got %{}", what,
              value.id);
}

}  // namespace

GraphValue GraphFunction::input(const std::string& name, const std::vector<int64_t>& shape,
                                const std::string& dtype) {
  return add_input(own().graph, InputKind::batch, name, shape, dtype);
}

GraphValue GraphFunction::parameter(const std::string& name, const std::vector<int64_t>& shape) {
  return add_input(own().graph, InputKind::parameter, name, shape, "real");
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
    expect_value(graph, operands[i], op);
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
  Graph& graph = own().graph;
  expect_value(graph, value, name);
  Builder(graph).output(name, value.id);
}

std::vector<int64_t> GraphFunction::shape(GraphValue value) const {
  expect_value(state_->graph, value, "shape");
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
  const auto expect_input = [&](const std::string& name) {
    if (graph.find_input(name) == nullptr)
      throw Error(ErrorCode::invalid_argument, "'{}' is no input of the graph", name);
  };
  for (const auto& [name, rms] : settings.input_rms) expect_input(name);
  for (const auto& [name, scale] : settings.input_scales) expect_input(name);
  const auto rounding = enum_from_name<ScaleRounding>(settings.rounding);
  if (!rounding)
    throw Error(ErrorCode::invalid_argument, "rounding: expected one of {}, got {}",
                fmt::join(enum_names<ScaleRounding>(), ", "), settings.rounding);
  Scalified scalified = octet::scalify(graph, {.rounding = *rounding,
                                               .input_rms = settings.input_rms,
                                               .input_scales = settings.input_scales});
  GraphFunction result;
  result.state_ =
      std::make_shared<State>(State{std::move(scalified.graph), std::move(scalified.scale)});
  return result;
}

int GraphFunction::scale(GraphValue value) const {
  expect_value(state_->graph, value, "scale");
  return state_->scales.empty() ? 0 : state_->scales[static_cast<size_t>(value.id)];
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
        result.values.push_back(number(array, i));
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
