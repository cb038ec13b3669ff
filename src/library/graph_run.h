// Graphs that users wrote, run on arrays that users have.
#pragma once

#include "data/npz.h"
#include "ir/graph.h"
#include "plan/backend.h"
#include "runtime/bound_graph.h"

namespace octet {

// Element i of an array of a type that GraphRun reads or writes, in the order of memory.
double number_at(const NumpyArray& array, size_t i);

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

 private:
  Backend backend_;
  Graph graph_;
  BoundGraph run_;
};

}  // namespace octet
