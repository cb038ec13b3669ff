// Linears' operands as GEMMs read them in eight bits: data and scales, made where the first GEMM
// reads them so and read by all that do.
//
// With one scale: `quantize` with the scale of operand_scales.h. GEMMs that want K-major factors
// (the reduction runs along the contiguous axis) read one that lies otherwise transposed, its
// tokens padded to a multiple of kPadRows with zero codes; the others read all as their tensors
// lie. Where both layouts are wanted at once, one quantize_both makes them: gradients always, x
// where it is kept (kept_operands.h).
// In blocks (OperandFormat): `quantize_groups`, as the tensor lies, with scales of its own. Rows
// and groups run along the axis that the GEMM reduces, so that wgrad's are groups of tokens: from
// the tensor itself, of x where scales are BF16 powers of two from the dequantized groups of the
// forward GEMM.
// Gradients that are rounded stochastically draw from the batch input kRoundingDraw.
#pragma once

#include <map>
#include <string_view>
#include <tuple>

#include "passes/precision/operand_scales.h"

namespace octet {

// u32[3]: seed, attempted step and micro-batch (Quantize::draw), in functions that draw.
inline constexpr std::string_view kRoundingDraw = "rounding_draw";

struct QuantizerOptions {
  bool k_major = true;  // false: the products read factors that lie either way
  Rounding gradient_rounding = Rounding::near;
  ScaleRule mx_rule = ScaleRule::power_ceil;  // of blocks with E8M0 scales
};

struct QuantizedOperand {
  ValueId q = kNoValue, scale = kNoValue;
};

class QuantizedOperands {
 public:
  QuantizedOperands(Rewriter& rewriter, OperandScales& scales, KeptOperands& kept,
                    const QuantizerOptions& options)
      : rewriter_(rewriter), scales_(scales), kept_(kept), options_(options) {}

  QuantizedOperand of(const LinearOperand& operand);
  // The numbers that a GEMM reads so: of blocks, powers of two make them exact in BF16.
  ValueId dequantized(const LinearOperand& operand);

 private:
  // The value, its kind, and of the data's type what may differ between GEMMs that read it.
  using Key = std::tuple<ValueId, OperandKind, Dtype, Granularity::Kind, bool>;
  static Key key(const LinearOperand& operand, const ResultType& type);

  bool is_k_major(const LinearGroup& group, GemmRole role) const;
  QuantizeAttrs attrs(const LinearOperand& operand) const;
  // x and scale, and what a rounding by these attributes draws from.
  ValueIds operands(const LinearOperand& operand, const QuantizeAttrs& attrs, ValueId scale);
  QuantizedOperand with_one_scale(const LinearOperand& operand, const ResultType& type);
  QuantizedOperand in_blocks(const LinearOperand& operand, const ResultType& type);

  Rewriter& rewriter_;
  Builder& b_ = rewriter_.builder();
  OperandScales& scales_;
  KeptOperands& kept_;
  const QuantizerOptions& options_;
  std::map<Key, QuantizedOperand> made_;
};

}  // namespace octet
