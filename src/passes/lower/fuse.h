// Fusion: Typed -> Lowered. Each rule replaces a few nodes by one op whose decomposition they are.
//
//   stored_operands   dequantize -> norm, activation or their gradients: the op reads codes and
//                     scales
//   add_quantize      f32 add -> cast, quantize_groups: residual sum, and its stored form beside it
//   one_layout        quantize_both of which one result is read -> quantize
//   layer_quantize    norm or activation -> (amax -> scale ->) quantize or quantize_both: codes
//                     without an unquantized store
//   known_statistics  a norm that is repeated and quantized with a scale of before takes the
//                     statistics of before too, where a gradient keeps them
//   gemm_accumulate   add(x, gemm) -> gemm with addend
//   norm_grad_accumulate  add(x, norm's gradient) -> the gradient with addend
//   stored_weight     dequantize -> gemm of few rows: the GEMM reads the weight's codes
//   residual          add(x, gemm of few rows), forward: gemm with addend; both where the target
//                     has such a kernel
//   kept_operands     activation with a quantizer; quantize_groups of its operands: the op keeps
//                     them in groups too, where the target asks for it
//   gradient_quantize  gated activation's gradients (-> amax -> scale) -> quantize_both of each, to
//                     FP8: codes without unquantized stores, where the target asks for it
//   gemm_bias         bias_add(gemm) -> gemm with the bias as its addend, where the target asks for
//                     it: the product is rounded once, behind the bias
//   gemm_quantize     gemm -> quantize: the GEMM stores codes, where the target asks for it
// and at the end fuse_amax.h.
// A rule that finds its first node but not the rest is a near miss: listed with the reason.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace octet {

struct FuseReport {
  std::vector<std::string> near_misses;  // "rms_norm_quantize: %12 = ...: read by add too"
};

struct FuseOptions {
  bool quantizes_gradients = false;  // rule gradient_quantize
  bool keeps_operands = false;       // rule kept_operands
  int64_t few_rows = 0;              // rules stored_weight and residual: of a GEMM; 0: none
  // Rule gemm_quantize: of a product a b^T of [m, k] and [n, k].
  std::function<bool(int64_t m, int64_t n, int64_t k)> stores_codes = {};
  // Rule gemm_bias: of a gemm with its bias as c, of the graph.
  std::function<bool(const Graph& graph, const Node& gemm)> adds_bias = {};
};

// Throws nothing; strictness is the caller's, from the report.
Graph fuse(const Graph& graph, FuseReport* report = nullptr, FuseOptions options = {});

}  // namespace octet
