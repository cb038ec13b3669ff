// The three GEMMs of each linear inside the layers read eight-bit codes: Typed -> Typed.
//
// y = x w^T (forward), dx = dy w (dgrad), dw = dy^T x (wgrad) become gemm(q_a, q_b, scale_a,
// scale_b) with both operands K-major (the reduction runs along the contiguous axis) where the
// kernels want that: a factor that is not, is quantized transposed, its rows padded to a multiple
// of kPadRows with zero codes. Elsewhere codes lie as their factors do. Scales are values: amax ->
// quant_scale -> quantize. Linears of one layer that read the same x are a group: one scale for
// their weights, one for their output gradients (the maximum over the members; the GEMMs wait until
// every member's gradient is there).
// Every amax's flag is gathered into the output "quantizer_flag". With stored scales there is no
// amax: codes of what is not finite are NaN (QuantizeAttrs::limit), which reaches the gradients.
// An operand in blocks (OperandFormat) is quantized as it lies, with scales of its own: rows and
// groups run along the axis that the GEMM reduces, so that wgrad's are groups of tokens, quantized
// from the tensor itself; of x, where scales are BF16 powers of two, again from its stored form.
// Where the backward pass reads x otherwise than the forward pass and does not compute it again,
// what it reads is made in the forward pass. Nothing is kept of weights in blocks between updates.
// A factor that is not quantized meets the other one dequantized, in a GEMM of the recipe's types.
// weight_copy: what is kept of weights is read as derived inputs: "copy_scale:<group>", and where
// codes are kept "copy:<weight>" (by row) and "copy_t:<weight>" (transposed); outputs that update
// those make them from the parameters. w_only keeps what the forward GEMM reads. Source: coat.md
// section 2 (docs/numerics.md).
#pragma once

#include <map>
#include <string>

#include "ir/graph.h"
#include "passes/precision/policy.h"

namespace octet {

struct QuantizeLinearsOptions {
  LinearFormats formats;
  std::vector<LinearOverride> overrides = {};
  Scaling scaling = Scaling::current;
  WeightCopy weight_copy = WeightCopy::per_use;
  FastAccumulate fast_accumulate = FastAccumulate::forward;
  // Where wgrad's transposed x is made: in the forward pass and kept (one byte), or in the backward
  // pass from x.
  bool keep_transposed_x = true;
  // By linear_name; not empty: scales are constants made of these, and nothing is measured.
  std::map<std::string, LinearRms> predicted = {};
  bool k_major = true;  // false: the products read factors that lie either way
  // Gradients that a scale not of this step saturates are flagged, as what is not finite is: the
  // values themselves are looked at, before the cast.
  bool detects_overflow = false;
  Rounding gradient_rounding = Rounding::near;
  BlockScale block_scale = BlockScale::max;   // of blocks, but of E8M0 scales
  ScaleRule mx_rule = ScaleRule::power_ceil;  // of those
};

Graph quantize_linears(const Graph& graph, const QuantizeLinearsOptions& options);

}  // namespace octet
