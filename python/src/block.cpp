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
using Names = std::vector<std::string>;

Field field(const Graph& graph, const std::string& name, ValueId id) {
  const TensorType& type = graph.type(id);
  return {name, std::string(dtype_name(type.dtype)), type.stored_shape(), to_string(type)};
}

// Of a graph's inputs, or of its outputs.
std::vector<Field> fields(const Graph& graph, const auto& ends) {
  std::vector<Field> all;
  all.reserve(ends.size());
  for (const auto& end : ends) all.push_back(field(graph, end.name, end.value));
  return all;
}

using Addresses = std::vector<uintptr_t>;

std::vector<std::byte*> pointers(const Addresses& addresses) {
  std::vector<std::byte*> all;
  all.reserve(addresses.size());
  for (const uintptr_t address : addresses) all.push_back(reinterpret_cast<std::byte*>(address));
  return all;
}

template <void (Block::*run)(const BlockCall&)>
void call(Block& block, const Addresses& inputs, const Addresses& outputs, uintptr_t workspace,
          uintptr_t stream) {
  const std::vector<std::byte*> from = pointers(inputs), to = pointers(outputs);
  const nb::gil_scoped_release unlocked;
  (block.*run)({.inputs = from,
                .outputs = to,
                .workspace = reinterpret_cast<std::byte*>(workspace),
                .stream = reinterpret_cast<void*>(stream)});
}

}  // namespace

void bind_block(nb::module_& module) {
  nb::class_<BlockMachine>(module, "BlockMachine")
      .def("__init__", [](BlockMachine* self, const BackendRequest& request) {
        new (self) BlockMachine(open_backend(request));
      });
  nb::class_<Block>(module, "Block")
      .def(
          "__init__",
          [](Block* self, const Graph& graph, const std::string& recipe, const Names& wanted,
             const Names& hidden, const Names& quantized,
             const std::shared_ptr<BlockMachine>& machine, uintptr_t stream) {
            const nb::gil_scoped_release unlocked;
            new (self) Block({graph, recipe, wanted, hidden, quantized}, machine,
                             reinterpret_cast<void*>(stream));
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg() = 0)
      .def("forward_inputs",
           [](const Block& block) { return fields(block.forward(), block.forward().inputs); })
      .def("forward_outputs",
           [](const Block& block) { return fields(block.forward(), block.forward().outputs); })
      .def("backward_inputs",
           [](const Block& block) { return fields(block.backward(), block.backward().inputs); })
      .def("backward_outputs",
           [](const Block& block) { return fields(block.backward(), block.backward().outputs); })
      .def("workspace_bytes", &Block::workspace_bytes)
      .def("text",
           [](const Block& block) {
             return print(block.forward()) + (block.has_backward() ? print(block.backward()) : "");
           })
      .def("run_forward", call<&Block::run_forward>, nb::arg(), nb::arg(), nb::arg() = 0,
           nb::arg() = 0)
      .def("run_backward", call<&Block::run_backward>, nb::arg(), nb::arg(), nb::arg() = 0,
           nb::arg() = 0);
}

}  // namespace octet::python
