// Fusion: Typed -> Lowered. Each rule replaces a few nodes by one op whose decomposition they are.
//
//   stored operands   dequantize -> norm, activation or their gradients      the op reads codes and
//   scales add_quantize      f32 add -> cast, quantize_groups                       residual sum,
//   stored form beside the stream norm_quantize     rms_norm -> (amax -> quant_scale ->) quantize
//   codes without a wide store gated_quantize    gated_act -> (amax -> quant_scale ->) quantize
//   gemm_accumulate   add(x, gemm) -> gemm with addend
// A rule that finds its first node but not the rest is a near miss: listed with the reason.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace octet {

struct FuseReport {
  std::vector<std::string> near_misses;  // "norm_quantize: %12 = ...: read by layer_norm_grad too"
};

// Throws nothing; strictness is the caller's, from the report.
Graph fuse(const Graph& graph, FuseReport* report = nullptr);

}  // namespace octet
