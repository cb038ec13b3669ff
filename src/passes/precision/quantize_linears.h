// The three GEMMs of each linear inside the layers read eight-bit data: Typed -> Typed.
//
// y = x w^T (forward), dx = dy w (dgrad), dw = dy^T x (wgrad) become gemm(q_a, q_b, scale_a,
// scale_b). Scales are values of the graph. A factor that is not quantized meets the other one
// dequantized, in a GEMM of the recipe's types.
//   who shares a scale           linear_groups.h
//   where a scale comes from     operand_scales.h
//   what is kept                 kept_operands.h
//   how an operand is quantized  quantized_operands.h
// Source: coat.md section 2 (docs/numerics.md).
#pragma once

#include "passes/precision/quantized_operands.h"

namespace octet {

struct QuantizeLinearsOptions {
  LinearFormats formats;
  std::vector<LinearOverride> overrides = {};
  BlockScale block_scale = BlockScale::max;
  ScaleOptions scales = {};
  KeepOptions kept = {};
  QuantizerOptions quantizers = {};
  FastAccumulate fast_accumulate = FastAccumulate::forward;
  std::optional<Accumulation> accumulation = {};
};

Graph quantize_linears(const Graph& graph, const QuantizeLinearsOptions& options);

}  // namespace octet
