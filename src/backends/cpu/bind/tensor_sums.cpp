// GEMMs with the sums of a card's tensor cores, where the target asks for them.
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/gemm/tensor_gemm.h"

namespace octet::cpu {
namespace {

using SumSlots = octet::Gemm;

bool tensor_sums_apply(const NodeView& view) {
  if (view.target.arithmetic == Arithmetic::own) return false;
  const Dtype y = view.out(SumSlots::y).dtype;
  const bool stores = is_high_precision(y) || (y == Dtype::e4m3 && view.has(SumSlots::scale_y));
  return stores && (!view.has(SumSlots::c) || is_high_precision(view.in(SumSlots::c).dtype)) &&
         tensor_gemm(view, capability_of(view.target.arithmetic));
}

TensorGemmSpec tensor_spec(const NodeView& view) {
  const auto& attrs = view.attrs<GemmAttrs>();
  const TensorType &a = view.in(SumSlots::a), &b = view.in(SumSlots::b), &y = view.out(SumSlots::y);
  const auto scale = [&](size_t slot) { return view.has(slot) ? view.in(slot).dtype : Dtype::f32; };
  return {.gemm = *tensor_gemm(view, capability_of(view.target.arithmetic)),
          .m = y.shape[0],
          .n = y.shape[1],
          .k = read_shape(a, attrs.trans_a)[1],
          .a = a,
          .b = b,
          .trans_a = reads_transposed(a, attrs.trans_a),
          .trans_b = reads_transposed(b, attrs.trans_b),
          .scale_a = scale(SumSlots::scale_a),
          .scale_b = scale(SumSlots::scale_b),
          .plain = view.target.architecture == isa_name(Isa::scalar)};
}

LaunchFn tensor_sums_prepare(const NodeView& view, Context& context) {
  const bool is_row = view.has(SumSlots::c) && is_bias_row(view.in(SumSlots::c));
  return launcher(view, context,
                  [gemm = TensorSumGemm(tensor_spec(view), context.pool.n_threads()),
                   is_row](const Call& call) {
                    const In c = call.in(SumSlots::c);
                    gemm.launch({.a = call.args.operands[SumSlots::a],
                                 .b = call.args.operands[SumSlots::b],
                                 .y = call.out(SumSlots::y),
                                 .scale_a = call.data<std::byte>(SumSlots::scale_a),
                                 .scale_b = call.data<std::byte>(SumSlots::scale_b),
                                 .scale_y = call.data<float>(SumSlots::scale_y),
                                 .bias = is_row ? c : In{},
                                 .addend = is_row ? In{} : c,
                                 .scratch = call.args.scratch},
                                call.pool);
                  });
}

int64_t tensor_sums_scratch(const NodeView& view) {
  return static_cast<int64_t>(
      TensorSumGemm(tensor_spec(view), view.target.n_threads).scratch_bytes());
}

const Binding kTensorSumBindings[] = {
    {{OpCode::gemm, "tensor sums", tensor_sums_apply, tensor_sums_scratch}, tensor_sums_prepare}};

}  // namespace

std::span<const Binding> tensor_sum_bindings() {
  return kTensorSumBindings;
}

}  // namespace octet::cpu
