// octet.graph: graphs as their text and as nodes, run on arrays.
#include <fmt/ranges.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <deque>

#include "base/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "library/graph_run.h"
#include "library/open_backend.h"
#include "library/user_graph.h"
#include "passes/driver.h"
#include "passes/scalify/count.h"
#include "python/src/arguments.h"

namespace octet::python {
namespace {

// NumPy's type ("bf16" of BF16's words), the shape, and the array, which is contiguous.
using Array = std::tuple<std::string, std::vector<int64_t>, nb::object>;
using Arrays = std::map<std::string, Array>;
using Outputs = std::map<std::string, nb::object>;
using Addresses = std::vector<uintptr_t>;

int64_t add_input_of_kind(Graph& graph, const std::string& kind, const std::string& name,
                          const std::string& dtype, const Shape& shape) {
  if (const auto known = enum_from_name<InputKind>(kind))
    return add_input(graph, *known, name, dtype, shape);
  throw Error(ErrorCode::invalid_argument, "kind: expected one of {}, got {}",
              fmt::join(enum_names<InputKind>(), ", "), kind);
}

std::pair<std::string, Shape> type_of(const Graph& graph, ValueId id) {
  expect_value(graph, id, "type");
  const TensorType& type = graph.type(id);
  return {std::string(dtype_name(type.dtype)), type.stored_shape()};
}

std::vector<std::pair<std::string, int64_t>> inputs_of(const Graph& graph) {
  std::vector<std::pair<std::string, int64_t>> all;
  for (const GraphInput& input : graph.inputs) all.emplace_back(input.name, input.value);
  return all;
}
std::vector<std::pair<std::string, int64_t>> outputs_of(const Graph& graph) {
  std::vector<std::pair<std::string, int64_t>> all;
  for (const GraphOutput& output : graph.outputs) all.emplace_back(output.name, output.value);
  return all;
}

using Names = std::vector<std::string>;
// The names of inputs and outputs, and the granularities of inputs.
using ScaledNames = std::tuple<Names, Names, std::map<std::string, std::string>>;
// The graph, log2 of each value's scale, and its shape.
using ScaledGraph = std::tuple<Graph, std::vector<int>, std::vector<Shape>>;
ScaledGraph scalify_graph(const Graph& graph, const std::string& rounding,
                          const std::map<std::string, double>& input_rms,
                          const std::map<std::string, int>& input_scales,
                          const ScaledNames& scaled) {
  const auto& [inputs, outputs, granularities] = scaled;
  Scalified result = scalify(graph, scalify_options(graph, {.rounding = rounding,
                                                            .input_rms = input_rms,
                                                            .input_scales = input_scales,
                                                            .scaled_inputs = inputs,
                                                            .scaled_outputs = outputs,
                                                            .granularities = granularities}));
  std::vector<Shape> shapes = scale_shapes(result);
  return {std::move(result.graph), std::vector<int>(result.scale), std::move(shapes)};
}

std::map<std::string, int64_t> rescales_of(const Graph& graph) {
  const RescaleCounts counts = count_rescales(graph);
  return {{"measured", counts.measured},
          {"at_run_time", counts.at_run_time},
          {"constant", counts.constant},
          {"folded", counts.folded}};
}

// The names of the operands that an op takes in order, and how many of them it must have.
std::pair<std::vector<std::string>, size_t> op_slots(const std::string& name) {
  const OpDef* def = find_op(name);
  if (def == nullptr) throw Error(ErrorCode::invalid_argument, "expected an op, got {}", name);
  std::vector<std::string> names;
  for (size_t i = 0; i < def->operands.size(); ++i) names.emplace_back(def->operands[i].name);
  return {names, def->operands.has_many() ? names.size() : def->operands.n_required()};
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kOpCount; ++i) names.emplace_back(op_def(static_cast<OpCode>(i)).name);
  return names;
}

// Name, NumPy's type and the shape of each output.
std::vector<std::tuple<std::string, std::string, Shape>> output_forms(const GraphRun& run) {
  std::vector<std::tuple<std::string, std::string, Shape>> forms;
  for (const GraphOutput& output : run.graph().outputs) {
    const NumpyArray form = run.output_form(output);
    forms.emplace_back(output.name, form.descr, form.shape);
  }
  return forms;
}

// Of arrays where they lie, into arrays. How many bytes were copied.
int64_t call(GraphRun& run, const Arrays& arrays, const Outputs& results) {
  std::deque<BufferView> held;
  ArrayViews inputs;
  for (const auto& [name, array] : arrays) {
    const auto& [descr, shape, memory] = array;
    inputs[name] = {descr, shape, held.emplace_back(memory, Access::read).bytes()};
  }
  OutputSpans outputs;
  for (const auto& [name, memory] : results)
    outputs[name] = held.emplace_back(memory, Access::write).writable();
  const nb::gil_scoped_release unlocked;
  return run.run(inputs, outputs);
}

// Of addresses of the device, in the order of the graph's inputs and outputs, on a stream.
void call_on_device(GraphRun& run, const Addresses& inputs, const Addresses& outputs,
                    uintptr_t workspace, uintptr_t stream) {
  const auto pointers = [](const Addresses& addresses) {
    std::vector<std::byte*> all;
    all.reserve(addresses.size());
    for (const uintptr_t address : addresses) all.push_back(reinterpret_cast<std::byte*>(address));
    return all;
  };
  const std::vector<std::byte*> from = pointers(inputs), to = pointers(outputs);
  const nb::gil_scoped_release unlocked;
  run.run_on_device({.inputs = from,
                     .outputs = to,
                     .workspace = reinterpret_cast<std::byte*>(workspace),
                     .stream = reinterpret_cast<void*>(stream)});
}

}  // namespace

void bind_graph(nb::module_& module) {
  nb::class_<Graph>(module, "Graph")
      .def("__init__",
           [](Graph* self, const std::string& name) { (new (self) Graph)->name = name; })
      .def_static("parse", read_graph)
      .def("text", [](const Graph& graph) { return print(graph); })
      .def("phase", [](const Graph& graph) { return std::string(enum_name(graph.phase)); })
      .def("add_input", add_input_of_kind)
      .def("append", append_node)
      .def("add_output", add_output)
      .def("type", type_of)
      .def("inputs", inputs_of)
      .def("outputs", outputs_of)
      .def("passes", [](const Graph& graph,
                        const std::vector<std::string>& names) { return run_passes(graph, names); })
      .def("scalify", scalify_graph)
      .def("rescales", rescales_of)
      .def("erase_output", erase_output)
      .def("delayed_rescale",
           [](Graph& graph, ValueId x, const std::string& site, const std::string& norm,
              const std::string& direction) {
             return delayed_rescale(graph, x, site, norm, direction);
           })
      .def("axis_rescale", axis_rescale)
      .def("periodic_rescale", periodic_rescale)
      .def("custom_scale", scaled_by)
      .def("debug", add_debug_output);
  nb::class_<GraphRun>(module, "GraphRun")
      .def("__init__",
           [](GraphRun* self, const Graph& graph, const BackendRequest& machine) {
             new (self) GraphRun(graph, open_backend(machine));
           })
      .def("graph", &GraphRun::graph)
      .def("output_forms", output_forms)
      .def("workspace_bytes", &GraphRun::workspace_bytes)
      .def("run_on_device", call_on_device)
      .def("__call__", call);
  module.def("op_names", op_names);
  module.def("op_slots", op_slots);
}

}  // namespace octet::python
