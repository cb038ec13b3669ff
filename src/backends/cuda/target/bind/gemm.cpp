#include "backends/cuda/params/gemm.h"

#include "backends/cuda/params/gemm_scratch.h"
#include "backends/cuda/target/architecture.h"
#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {
namespace {

GemmBlocks blocks_of(const TensorType& factor) {
  const ScaleTile tile = scale_tile(factor);
  return {static_cast<int32_t>(tile.rows), static_cast<int32_t>(tile.cols)};
}

GemmParams gemm_params(const NodeView& view) {
  const auto& attrs = view.attrs<GemmAttrs>();
  const TensorType &a = view.in(Gemm::a), &b = view.in(Gemm::b);
  const Shape& y = view.out(Gemm::y).shape;
  GemmParams p;
  p.m = y[0];
  p.n = y[1];
  p.k = read_shape(a, attrs.trans_a)[1];
  p.a = a.dtype;
  p.b = b.dtype;
  p.y = view.out(Gemm::y).dtype;
  p.has_c = view.has(Gemm::c);
  p.c = p.has_c ? view.in(Gemm::c).dtype : is_fp8(p.y) ? Dtype::bf16 : p.y;
  if (const auto scale = constant_of(view, Gemm::scale_y))
    p.inverse_scale_y = 1 / static_cast<float>(*scale);
  p.trans_a = reads_transposed(a, attrs.trans_a);
  p.trans_b = reads_transposed(b, attrs.trans_b);
  p.fast_accumulate = attrs.fast_accumulate;
  p.tf32 = attrs.tf32 && p.a == Dtype::f32;
  p.a_blocks = blocks_of(a);
  p.b_blocks = blocks_of(b);
  p.has_scale_a = view.has(Gemm::scale_a);
  p.has_scale_b = view.has(Gemm::scale_b);
  const GraphInput* input = view.graph.input_of(view.node.in(Gemm::b));
  p.b_is_constant = input != nullptr &&
                    (input->kind == InputKind::parameter || input->kind == InputKind::constant);
  if (const Architecture* device = find_architecture(view.target.capability)) {
    p.fp8_products = device->fp8_products;
    p.fp8_blocks = device->fp8_blocks;
  }
  if (view.has(Gemm::scale_a)) p.a_scales = view.in(Gemm::scale_a).dtype;
  if (view.has(Gemm::scale_b)) p.b_scales = view.in(Gemm::scale_b).dtype;
  return p;
}

bool scale_applies(const GemmBlocks& blocks, Dtype scales) {
  return blocks.none() ? scales == Dtype::f32 : is_wide(scales) || scales == Dtype::e8m0;
}

// Factors of one wide type, or two of codes with their scales; addend and result are wide.
bool gemm_takes(const NodeView& view, const GemmParams& p) {
  if (view.has(Gemm::scale_y))
    return constant_of(view, Gemm::scale_y) && stores_e4m3(p) && view.has(Gemm::scale_a) &&
           view.has(Gemm::scale_b);
  if (mixes_types(p)) return has_few_rows(p) && is_wide_or_half(p.y);
  const bool factors =
      (is_wide_or_half(p.a) && p.a == p.b) || (is_gemm_operand(p.a) && is_gemm_operand(p.b));
  const bool is_scaled =
      !is_gemm_operand(p.a) || (view.has(Gemm::scale_a) && view.has(Gemm::scale_b));
  return factors && is_scaled && is_wide_or_half(p.y) && is_wide_or_half(p.c) &&
         scale_applies(p.a_blocks, p.a_scales) && scale_applies(p.b_blocks, p.b_scales);
}

template <GemmKind kKind, bool kStoresCodes = false>
bool gemm_applies(const NodeView& view) {
  const GemmParams p = gemm_params(view);
  return kind_of(p) == kKind && view.has(Gemm::scale_y) == kStoresCodes && gemm_takes(view, p);
}

int64_t gemm_scratch(const NodeView& view) {
  return gemm_scratch_bytes(gemm_params(view));
}

KernelSpec gemm_spec(const NodeView& view) {
  return make_spec(KernelId::gemm, gemm_params(view));
}

bool gemm_may_join(const NodeView&) {
  return true;
}

constexpr Binding gemm_row(std::string_view name, bool (*applies)(const NodeView&),
                           RowFacts facts = {}, bool (*may_join)(const NodeView&) = nullptr) {
  return {{OpCode::gemm, name, applies, gemm_scratch, facts, may_join}, gemm_spec};
}
const Binding kGemmBindings[] = {
    gemm_row("few rows", gemm_applies<GemmKind::few_rows>, {}, gemm_may_join),
    gemm_row("library", gemm_applies<GemmKind::wide>),
    gemm_row("fp8", gemm_applies<GemmKind::fp8>),
    gemm_row("fp8 stores e4m3", gemm_applies<GemmKind::fp8, true>, {.constant_scale = true}),
    gemm_row("blocks", gemm_applies<GemmKind::blocks>),
    gemm_row("decoded", gemm_applies<GemmKind::decoded>),
};

}  // namespace

std::span<const Binding> gemm_bindings() {
  return kGemmBindings;
}

}  // namespace octet::cuda
