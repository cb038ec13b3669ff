#include "backends/cuda/params/gemm.h"

#include "backends/cuda/params/gemm_scratch.h"
#include "backends/cuda/target/architecture.h"
#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/choose/gemm.h"

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
  p.has_bias = view.has(Gemm::c) && is_bias_row(view.in(Gemm::c));
  p.has_c = view.has(Gemm::c) && !p.has_bias;
  p.c = p.has_c ? view.in(Gemm::c).dtype : is_fp8(p.y) ? Dtype::bf16 : p.y;
  if (const auto scale = constant_of(view, Gemm::scale_y))
    p.factor = 1 / static_cast<float>(*scale);
  p.trans_a = reads_transposed(a, attrs.trans_a);
  p.trans_b = reads_transposed(b, attrs.trans_b);
  p.fast_accumulate = attrs.fast_accumulate;
  p.checks_sums = view.target.arithmetic != Arithmetic::own;
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
  return blocks.none() ? scales == Dtype::f32 : is_f32_or_bf16(scales) || scales == Dtype::e8m0;
}

// The library has no such product of FP8 factors in f32.
bool bias_applies(const NodeView& view, const GemmParams& p) {
  const bool is_library = p.kind == GemmKind::high_precision || p.kind == GemmKind::decoded ||
                          (p.kind == GemmKind::fp8 && p.y != Dtype::f32);
  return is_library && p.k > 0 && !is_fp8(p.y) && view.in(Gemm::c).dtype == p.y && !has_own_sums(p);
}

// Operands of one high-precision type, or two of codes with their scales; addend and result are in
// high precision.
bool gemm_takes(const NodeView& view, const GemmParams& p) {
  if (p.has_bias && !bias_applies(view, p)) return false;
  if (view.has(Gemm::scale_y))
    return constant_of(view, Gemm::scale_y) && stores_e4m3(p) && view.has(Gemm::scale_a) &&
           view.has(Gemm::scale_b);
  if (mixes_types(p)) return (has_few_rows(p) || is_weight_only(p)) && is_high_precision(p.y);
  const bool factors =
      (is_high_precision(p.a) && p.a == p.b) || (is_gemm_operand(p.a) && is_gemm_operand(p.b));
  const bool is_scaled =
      !is_gemm_operand(p.a) || (view.has(Gemm::scale_a) && view.has(Gemm::scale_b));
  return factors && is_scaled && is_high_precision(p.y) && is_high_precision(p.c) &&
         scale_applies(p.a_blocks, p.a_scales) && scale_applies(p.b_blocks, p.b_scales);
}

// How the tensor cores add FP8 products (math/tensor_sums.h); of other products any.
enum class RowSums : uint8_t { any, fast, promoted };

template <GemmKind kKind, RowSums kSums, bool kStoresCodes>
bool gemm_applies(const NodeView& view) {
  GemmParams p = gemm_params(view);
  p.kind = kKind;
  const bool is_decoded = kKind == GemmKind::decoded && is_gemm_operand(p.a);
  // Also of few rows, where their kernel is struck.
  const bool is_library = kKind == GemmKind::high_precision && !is_gemm_operand(p.a) && p.a == p.b;
  const bool adds_so = kSums == RowSums::any || p.fast_accumulate == (kSums == RowSums::fast);
  return (is_decoded || is_library || kind_of(p) == kKind) && adds_so &&
         view.has(Gemm::scale_y) == kStoresCodes && gemm_takes(view, p);
}

template <GemmKind kKind>
GemmParams params_of_kind(const NodeView& view) {
  GemmParams p = gemm_params(view);
  p.kind = kKind;
  return p;
}
template <GemmKind kKind>
int64_t gemm_scratch(const NodeView& view) {
  return gemm_scratch_bytes(params_of_kind<kKind>(view));
}
template <GemmKind kKind>
KernelSpec gemm_spec(const NodeView& view) {
  const GemmParams p = params_of_kind<kKind>(view);
  return launching(make_spec(KernelId::gemm, p), launches_of(p));
}

GemmParams batched_params(const NodeView& view) {
  using S = BatchedGemm;
  const auto& attrs = view.attrs<BatchedGemmAttrs>();
  const Shape &a = view.in(S::a).shape, &y = view.out(S::y).shape;
  GemmParams p;
  p.batch = y[0], p.m = y[1], p.n = y[2];
  p.k = a[attrs.trans_a ? 1 : 2];
  p.a = view.in(S::a).dtype;
  p.b = view.in(S::b).dtype;
  p.y = view.out(S::y).dtype;
  p.has_c = view.has(S::c);
  p.c = p.has_c ? view.in(S::c).dtype : p.y;
  p.trans_a = attrs.trans_a;
  p.trans_b = attrs.trans_b;
  p.factor = static_cast<float>(attrs.factor);
  return p;
}
// Products that the library multiplies, adds and rounds by itself.
bool batched_applies(const NodeView& view) {
  const GemmParams p = batched_params(view);
  return is_high_precision(p.a) && p.a == p.b && is_high_precision(p.y) && !has_own_sums(p);
}
int64_t batched_scratch(const NodeView& view) {
  return gemm_scratch_bytes(batched_params(view));
}
KernelSpec batched_spec(const NodeView& view) {
  const GemmParams p = batched_params(view);
  return launching(make_spec(KernelId::gemm, p), launches_of(p));
}

template <GemmKind kKind, RowSums kSums = RowSums::any, bool kStoresCodes = false>
constexpr Binding gemm_row(std::string_view name, RowFacts facts = {},
                           bool (*may_join)(const NodeView&) = nullptr, double factor = 1) {
  return {{OpCode::gemm, name, gemm_applies<kKind, kSums, kStoresCodes>, gemm_scratch<kKind>, facts,
           may_join, factor},
          gemm_spec<kKind>};
}
const Binding kGemmBindings[] = {
    gemm_row<GemmKind::few_rows>("few rows", {}, always),
    gemm_row<GemmKind::weight_only>("weight only", {}, always),
    gemm_row<GemmKind::high_precision>("library"),
    gemm_row<GemmKind::fp8, RowSums::fast>("fp8 fast"),
    gemm_row<GemmKind::fp8, RowSums::promoted>("fp8 promoted"),
    gemm_row<GemmKind::fp8, RowSums::fast, true>("fp8 fast stores e4m3", {.constant_scale = true}),
    gemm_row<GemmKind::fp8, RowSums::promoted, true>("fp8 promoted stores e4m3",
                                                     {.constant_scale = true}),
    gemm_row<GemmKind::by_rows, RowSums::fast>("fp8 fast by row"),
    gemm_row<GemmKind::by_rows, RowSums::promoted>("fp8 promoted by row"),
    gemm_row<GemmKind::blocks>("blocks"),
    gemm_row<GemmKind::decoded>("decoded", {}, nullptr, 4),
    {{OpCode::batched_gemm, "library", batched_applies, batched_scratch}, batched_spec},
};

}  // namespace

std::span<const Binding> gemm_bindings() {
  return kGemmBindings;
}

}  // namespace octet::cuda
