#include "backends/cuda/params/gemm.h"

#include "backends/cuda/params/gemm_scratch.h"
#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {
namespace {

GemmParams params_of(const NodeView& view) {
  const auto& attrs = view.attrs<GemmAttrs>();
  const Shape& a = view.in(Gemm::a).shape;
  const Shape& y = view.out(Gemm::y).shape;
  GemmParams p;
  p.m = y[0];
  p.n = y[1];
  p.k = a[attrs.trans_a ? 0 : 1];
  p.a = view.in(Gemm::a).dtype;
  p.b = view.in(Gemm::b).dtype;
  p.y = view.out(Gemm::y).dtype;
  p.has_c = view.has(Gemm::c);
  p.c = p.has_c ? view.in(Gemm::c).dtype : p.y;
  p.trans_a = attrs.trans_a;
  p.trans_b = attrs.trans_b;
  p.fast_accumulate = attrs.fast_accumulate;
  p.tf32 = attrs.tf32 && p.a == Dtype::f32;
  return p;
}

// Factors of one wide type, or two of codes; the addend is of the result's type.
bool gemm_applies(const NodeView& view) {
  const GemmParams p = params_of(view);
  const bool factors =
      (is_wide_or_half(p.a) && p.a == p.b) || (is_gemm_operand(p.a) && is_gemm_operand(p.b));
  const bool result = p.y == Dtype::f32 || (p.a != Dtype::f32 && is_wide_or_half(p.y));
  return factors && result && p.c == p.y;
}

int64_t gemm_scratch(const NodeView& view) {
  return gemm_scratch_bytes(params_of(view));
}

KernelSpec gemm_spec(const NodeView& view) {
  return make_spec(KernelId::gemm, params_of(view));
}

const Binding kBindings[] = {{OpCode::gemm, gemm_applies, gemm_scratch, gemm_spec}};

}  // namespace

std::span<const Binding> gemm_bindings() {
  return kBindings;
}

}  // namespace octet::cuda
