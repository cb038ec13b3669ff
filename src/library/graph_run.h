// Graphs that users wrote, run on arrays that users have.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "data/npz.h"
#include "ir/graph.h"
#include "library/block.h"
#include "runtime/bound_graph.h"

namespace octet {

// Element i of an array of a type that GraphRun reads or writes, in the order of memory.
double number_at(const NumpyArray& array, size_t i);

// An array where it lies: as NumpyArray has it, or "bf16", BF16 as 16-bit words.
struct ArrayView {
  std::string descr;
  Shape shape;
  std::span<const std::byte> bytes;
};
using ArrayViews = std::map<std::string, ArrayView>;
using OutputSpans = std::map<std::string, std::span<std::byte>>;

// A graph with a kernel for each node, and its memory. Values without types are f32, and ops are
// fused as in a step of training.
class GraphRun {
 public:
  // Throws Error{invalid_argument} for a graph that several ranks run together.
  GraphRun(const Graph& graph, Backend backend);

  // The graph as it runs, in the phase `lowered`.
  const Graph& graph() const { return graph_; }

  // The outputs by name, of an array for each input. Shapes are as values lie in memory
  // (TensorType::stored_shape).
  //
  //     of the graph            read from                    written as
  //     f32, bf16, fp16         <f2, <f4, <f8, rounded once  <f4; fp16 <f2
  //     i32, u32, i16, u16, u8  integers, checked            the same type
  //     8-bit formats           |u1: their codes             |u1
  //     int8                    |i1                          |i1
  //     boolean                 |b1                          |b1
  //
  // Equal at every call. Throws one Error{invalid_argument} for all names, types, shapes and
  // numbers that do not fit, before it runs.
  NumpyArrays operator()(const NumpyArrays& inputs);

  // What an output is written as, without bytes.
  NumpyArray output_form(const GraphOutput& output) const;
  // Into the caller's memory: `outputs` has each output's bytes, in the order of the graph. How
  // many bytes were copied or converted; on a CPU none of inputs of the value's own type that are
  // aligned to 16 bytes, nor of outputs but for BF16 and for what overwrites an input.
  int64_t run(const ArrayViews& inputs, const OutputSpans& outputs);
  // On the device's memory: inputs and outputs as values lie, in the order of the graph, each
  // aligned to 256 bytes of a GPU. Queued on the call's stream; nobody waits for it. Throws
  // Error{invalid_argument} where the graph overwrites an input.
  void run_on_device(const BlockCall& call);
  int64_t workspace_bytes();
  bool is_asynchronous() const { return machine_.is_asynchronous(); }

 private:
  // By an output that is its next value.
  bool is_overwritten(const GraphInput& input) const;
  BoundBlock& block();
  int64_t run_in_place(const ArrayViews& inputs, const OutputSpans& outputs);
  int64_t run_copied(const ArrayViews& inputs, const OutputSpans& outputs);

  BlockMachine machine_;
  Graph graph_;
  // Made where they are first asked for.
  std::unique_ptr<BoundGraph> own_;
  std::unique_ptr<BoundBlock> block_;
};

}  // namespace octet
