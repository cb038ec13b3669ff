// Fusion: Typed -> Lowered. A node takes up what is beside it, and becomes a form: one op whose
// decomposition they are together. The folds, in the order in which they are tried (fuse.cpp):
//
//   one layout        quantize_both of which one result is read -> quantize
//   load              dequantize -> norm, activation, their gradients, or the weight of a gemm: the
//                     op reads codes and scales
//   addend            gemm or norm's gradient -> add(x, it), gemm -> bias_add: the op adds x, the
//                     sum is rounded once
//   groups            f32 add -> cast, quantize_groups: residual sum, and its stored form beside it
//   store             norm, activation, gated activation's gradients or gemm -> (amax -> scale ->)
//                     quantize or quantize_both of each: codes without an unquantized store
//   scaled moment     rescale -> adamw_step -> store_scaled: the update reads and stores FP16
//   known statistics  a norm that is repeated and quantized with a scale of before takes the
//                     statistics of before too, where a gradient keeps them
//   kept operands     activation with a quantizer; quantize_groups of its operands: the op keeps
//                     them in groups too
//   amax              an op that stores what an amax is of gives it (fuse_amax.h)
//   own scale         (amax ->) scale -> quantize or quantize_both: the quantizer makes its scale
//
// Not all targets have kernels for every form: loads and stores of gemms, their addends in a
// forward pass and biases, stores of gradients and kept operands are folds where the target takes
// the form.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace octet {

struct FuseReport {
  // Quantizers that are not taken up: "rms_norm_quantize: %12 = ...: read by add too".
  std::vector<std::string> near_misses;
};

// True if a form is worth it: a node on operands of the graph, whose results have the types of the
// graph's values that they replace.
using TakesForm = std::function<bool(const Graph& graph, const Node& form)>;

// takes: nothing where no form that not all targets have is taken. Throws nothing; strictness is
// the caller's, from the report.
Graph fuse(const Graph& graph, FuseReport* report = nullptr, const TakesForm& takes = {});

}  // namespace octet
