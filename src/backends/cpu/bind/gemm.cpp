#include "backends/cpu/gemm/gemm.h"

#include "backends/cpu/bind/launch.h"

namespace octet::cpu {
namespace {

using GemmSlots = octet::Gemm;

Transpose transpose_if(bool is_transposed) {
  return is_transposed ? Transpose::yes : Transpose::no;
}

GemmSpec spec_of(const NodeView& view) {
  const auto& attrs = view.attrs<GemmAttrs>();
  const TensorType &a = view.in(GemmSlots::a), &b = view.in(GemmSlots::b),
                   &y = view.out(GemmSlots::y);
  return {.m = y.shape[0],
          .n = y.shape[1],
          .k = read_shape(a, attrs.trans_a)[1],
          .a = a.dtype,
          .b = b.dtype,
          .c = y.dtype,
          .trans_a = transpose_if(reads_transposed(a, attrs.trans_a)),
          .trans_b = transpose_if(reads_transposed(b, attrs.trans_b))};
}

// Factors f32, bf16, or codes of one scale, which the kernel decodes exactly; the result is f32 or
// bf16.
bool gemm_applies(const NodeView& view) {
  const auto factor = [](const TensorType& type) {
    return (is_f32_or_bf16(type.dtype) || is_gemm_operand(type.dtype)) && scale_tile(type).is_all();
  };
  const bool addend = !view.has(GemmSlots::c) || is_f32_or_bf16(view.in(GemmSlots::c).dtype);
  return factor(view.in(GemmSlots::a)) && factor(view.in(GemmSlots::b)) &&
         is_f32_or_bf16(view.out(GemmSlots::y).dtype) && addend;
}

LaunchFn gemm_prepare(const NodeView& view, Context& context) {
  const bool is_row = view.has(GemmSlots::c) && is_bias_row(view.in(GemmSlots::c));
  return launcher(view, context,
                  [gemm = Gemm(spec_of(view), context.pool.n_threads()), is_row](const Call& call) {
                    const In c = call.in(GemmSlots::c);
                    gemm.launch({.a = call.args.operands[GemmSlots::a],
                                 .b = call.args.operands[GemmSlots::b],
                                 .c = call.args.results[GemmSlots::y],
                                 .scale_a = call.data<float>(GemmSlots::scale_a),
                                 .scale_b = call.data<float>(GemmSlots::scale_b),
                                 .bias = is_row ? c : In{},
                                 .addend = is_row ? In{} : c,
                                 .scratch = call.args.scratch},
                                call.pool);
                  });
}

// One matrix of the batch.
GemmSpec batched_spec(const NodeView& view) {
  const auto& attrs = view.attrs<BatchedGemmAttrs>();
  const Shape &a = view.in(BatchedGemm::a).shape, &y = view.out(BatchedGemm::y).shape;
  return {.m = y[1],
          .n = y[2],
          .k = a[attrs.trans_a ? 1 : 2],
          .a = view.in(BatchedGemm::a).dtype,
          .b = view.in(BatchedGemm::b).dtype,
          .c = view.out(BatchedGemm::y).dtype,
          .trans_a = transpose_if(attrs.trans_a),
          .trans_b = transpose_if(attrs.trans_b)};
}

// One after another, each as if it were alone: bits do not depend on the batch.
LaunchFn batched_prepare(const NodeView& view, Context& context) {
  const GemmSpec spec = batched_spec(view);
  return launcher(
      view, context,
      [spec, gemm = Gemm(spec, context.pool.n_threads()), n = view.out(BatchedGemm::y).shape[0],
       factor = static_cast<float>(view.attrs<BatchedGemmAttrs>().factor)](const Call& call) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t n_y = i * spec.m * spec.n;
          gemm.launch({.a = offset(call.in(BatchedGemm::a), i * spec.m * spec.k).data,
                       .b = offset(call.in(BatchedGemm::b), i * spec.n * spec.k).data,
                       .c = offset(call.out(BatchedGemm::y), n_y).data,
                       .alpha = &factor,
                       .addend = offset(call.in(BatchedGemm::c), n_y),
                       .scratch = call.args.scratch},
                      call.pool);
        }
      });
}

template <GemmSpec (*kSpec)(const NodeView&)>
int64_t scratch_of(const NodeView& view) {
  return static_cast<int64_t>(Gemm(kSpec(view), view.target.n_threads).scratch_bytes());
}

const Binding kGemmBindings[] = {
    {{OpCode::gemm, "simd", gemm_applies, scratch_of<spec_of>}, gemm_prepare},
    {{OpCode::batched_gemm, "simd", all_f32_or_bf16, scratch_of<batched_spec>}, batched_prepare}};

}  // namespace

std::span<const Binding> gemm_bindings() {
  return kGemmBindings;
}

}  // namespace octet::cpu
