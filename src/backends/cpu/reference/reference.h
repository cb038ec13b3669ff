// Reference kernels: one scalar, obvious function per primitive over doubles; an op that is
// composed of primitives is its decomposition (prepared_op.h). They are the oracle of every other
// kernel, the interpreter that tests run graphs with, and the kernels of a run with --isa scalar.
//
// A value of any dtype is held as the double that it decodes to; results are not rounded here
// (round_to does that), but where the contract of an op speaks of f32 arithmetic (quantizers, the
// optimizer) its function computes in f32.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace octet::reference {

struct RefTensor {
  TensorType type;
  std::span<double> data;  // empty for an absent operand or result
};

// Operands and results by slot (ir/ops/slots.h).
struct RefCall {
  const Attrs& attrs;
  std::span<const RefTensor> in;
  std::span<RefTensor> out;
};

using Kernel = void (*)(const RefCall& call);

// The function of an op; nullptr where it is composed (OpRow::is_composed).
Kernel kernel(OpCode op);

// Rounds to the nearest value of the dtype (saturating where the format has no Inf); real stays as
// it is.
double round_to(Dtype dtype, double x);

// Decodes n elements of storage into doubles, and back with round_to.
void load(Dtype dtype, const std::byte* from, std::span<double> to);
void store(Dtype dtype, std::span<const double> from, std::byte* to);

using Tensors = std::map<std::string, std::vector<double>>;  // by name of input or output

// Runs a graph node by node, rounding each result to its dtype. Throws where an input is missing or
// has a wrong size.
Tensors interpret(const Graph& graph, const Tensors& inputs);

}  // namespace octet::reference
