#include "backends/cuda/target/choose/quantize.h"

namespace octet::cuda {
namespace {

// Parameters that GroupChoice depends on.
struct Groups {
  int64_t rows = 0, cols = 0, block_rows = 1, block_cols = 1;
  Dtype codes = Dtype::e4m3;
  bool gives_codes = true;  // false: what they stand for
  bool adds = false;
  Dtype a = Dtype::bf16, b = Dtype::bf16, sum = Dtype::bf16;
  Rounding rounding = Rounding::near;

  // Groups of 8 to 256 elements, which a part of a warp shares.
  constexpr bool are_even() const {
    for (int64_t size = 8; size <= 256; size *= 2) {
      if (block_rows == 1 && block_cols == size && cols % size == 0) return true;
    }
    return false;
  }
  constexpr bool are_rows() const { return block_rows == 1 && block_cols >= cols && !adds; }
  // Codes of bf16 in E4M3 or E5M2, with blocks of kTileSize rows and as many columns or one.
  constexpr bool are_tiles() const {
    const bool alike = !adds || (a == b && a == sum);
    return is_fp8(codes) && alike && a == Dtype::bf16 && block_rows == kTileSize &&
           (block_cols == 1 || block_cols == kTileSize);
  }
};

// Addresses of a plan are multiples of kAlignment; where others bring them, the module looks.
constexpr GroupChoice choice_of(const Groups& g) {
  const bool in_eights = g.cols % 8 == 0;
  const bool even = g.are_even(), nearest = g.rounding == Rounding::near && in_eights;
  const bool is_typed = nearest && g.gives_codes && is_gemm_operand(g.codes) && (even || !g.adds);
  GroupKernel kernel = GroupKernel::panel;
  if (nearest && even) {
    kernel = GroupKernel::even;
  } else if (nearest && g.are_rows()) {
    kernel = GroupKernel::row;
  } else if (is_typed && g.are_tiles()) {
    kernel = GroupKernel::tile;
  }
  return {.kernel = kernel, .is_typed = is_typed, .in_eights = in_eights};
}

KernelNames launches_of(GroupChoice choice, int64_t rows, int64_t cols) {
  constexpr std::string_view kNames[] = {"quantize_even", "quantize_row", "quantize_tile",
                                         "quantize_panel"};
  if (rows == 0 || cols == 0) return {};
  return {kNames[static_cast<size_t>(choice.kernel)]};
}

KernelNames maxima_of(int64_t n_operands) {
  return repeated("amax_blocks", launches_for(n_operands, kAmaxOperands));
}
std::string_view name_of(const QuantizeParams& p) {
  return p.by_tile ? "quantize_tiles" : "quantize_rows";
}

}  // namespace

KernelNames launches_of(const AmaxParams& p) {
  return maxima_of(p.n_operands);
}
KernelNames launches_of(const AnyOfParams& p) {
  return repeated("any_flags", launches_for(p.n_operands, kFlagOperands));
}
KernelNames launches_of(const ScaleParams&) {
  return {"scale_of_amax"};
}
KernelNames launches_of(const PeriodicScaleParams&) {
  return {"step_scale"};
}
KernelNames launches_of(const DequantizeParams& p) {
  if (p.rows * p.cols == 0) return {};
  return {"dequantize_codes"};
}

void choose_kernels(QuantizeParams& p) {
  p.is_any = p.rounding != Rounding::near || !is_gemm_operand(p.codes);
  p.by_tile = p.transposed || p.is_any;
}
KernelNames launches_of(const QuantizeParams& p) {
  if (p.cols == 0 || (p.transposed ? p.padded_rows : p.rows) == 0) return {};
  return {name_of(p)};
}

// No launch goes before where the amax is known.
void choose_kernels(AmaxQuantizeParams& p) {
  choose_kernels(p.quantize);
}
KernelNames launches_of(const AmaxQuantizeParams& p) {
  KernelNames names = p.known ? KernelNames{} : maxima_of(p.n_maxima + (p.measures ? 1 : 0));
  names.push_back(name_of(p.quantize));
  return names;
}

void choose_kernels(GroupParams& p) {
  p.choice = choice_of({.rows = p.rows,
                        .cols = p.cols,
                        .block_cols = p.group,
                        .codes = p.codes,
                        .adds = p.adds,
                        .a = p.a,
                        .b = p.b,
                        .sum = p.sum});
}
KernelNames launches_of(const GroupParams& p) {
  return launches_of(p.choice, p.rows, p.cols);
}

void choose_kernels(BlockParams& p) {
  p.choice = choice_of({.rows = p.rows,
                        .cols = p.cols,
                        .block_rows = p.block_rows,
                        .block_cols = p.block_cols,
                        .codes = p.codes,
                        .a = p.x,
                        .rounding = p.rounding});
}
KernelNames launches_of(const BlockParams& p) {
  return launches_of(p.choice, p.rows, p.cols);
}

void choose_kernels(FakeQuantizeParams& p) {
  p.choice = choice_of({.rows = p.rows,
                        .cols = p.cols,
                        .block_cols = p.group,
                        .codes = p.format,
                        .gives_codes = false,
                        .a = p.x});
}
KernelNames launches_of(const FakeQuantizeParams& p) {
  return launches_of(p.choice, p.rows, p.cols);
}

}  // namespace octet::cuda
