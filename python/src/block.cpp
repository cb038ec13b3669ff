// octet.torch: blocks of models over tensors of PyTorch, which come as addresses.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "ir/print.h"
#include "library/block.h"
#include "library/open_backend.h"
#include "python/src/arguments.h"

namespace octet::python {
namespace {

// Name, dtype, shape as it lies, and the type as text.
using Field = std::tuple<std::string, std::string, Shape, std::string>;

Field field(const Graph& graph, const std::string& name, ValueId id) {
  const TensorType& type = graph.type(id);
  return {name, std::string(dtype_name(type.dtype)), type.stored_shape(), to_string(type)};
}

std::vector<Field> inputs_of(const Graph& graph) {
  std::vector<Field> all;
  all.reserve(graph.inputs.size());
  for (const GraphInput& input : graph.inputs) all.push_back(field(graph, input.name, input.value));
  return all;
}

std::vector<Field> outputs_of(const Graph& graph) {
  std::vector<Field> all;
  all.reserve(graph.outputs.size());
  for (const GraphOutput& output : graph.outputs)
    all.push_back(field(graph, output.name, output.value));
  return all;
}

std::vector<std::byte*> pointers(const std::vector<uintptr_t>& addresses) {
  std::vector<std::byte*> all;
  all.reserve(addresses.size());
  for (const uintptr_t address : addresses) all.push_back(reinterpret_cast<std::byte*>(address));
  return all;
}

void run_forward(Block& block, const std::vector<uintptr_t>& inputs,
                 const std::vector<uintptr_t>& outputs) {
  const std::vector<std::byte*> from = pointers(inputs), to = pointers(outputs);
  const nb::gil_scoped_release unlocked;
  block.run_forward(from, to);
}

void run_backward(Block& block, const std::vector<uintptr_t>& inputs,
                  const std::vector<uintptr_t>& outputs) {
  const std::vector<std::byte*> from = pointers(inputs), to = pointers(outputs);
  const nb::gil_scoped_release unlocked;
  block.run_backward(from, to);
}

}  // namespace

void bind_block(nb::module_& module) {
  nb::class_<BlockMachine>(module, "BlockMachine")
      .def("__init__", [](BlockMachine* self, const BackendRequest& request) {
        new (self) BlockMachine(open_backend(request));
      });
  nb::class_<Block>(module, "Block")
      .def("__init__",
           [](Block* self, const Graph& graph, const std::string& recipe,
              const std::vector<std::string>& wanted, const std::vector<std::string>& hidden,
              const std::shared_ptr<BlockMachine>& machine) {
             const nb::gil_scoped_release unlocked;
             new (self) Block({graph, recipe, wanted, hidden}, machine);
           })
      .def("forward_inputs", [](const Block& block) { return inputs_of(block.forward()); })
      .def("forward_outputs", [](const Block& block) { return outputs_of(block.forward()); })
      .def("backward_inputs", [](const Block& block) { return inputs_of(block.backward()); })
      .def("backward_outputs", [](const Block& block) { return outputs_of(block.backward()); })
      .def("text",
           [](const Block& block) {
             return print(block.forward()) + (block.has_backward() ? print(block.backward()) : "");
           })
      .def("run_forward", run_forward)
      .def("run_backward", run_backward);
}

}  // namespace octet::python
