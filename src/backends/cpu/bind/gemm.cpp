#include "backends/cpu/gemm/gemm.h"

#include "backends/cpu/bind/launch.h"

namespace octet::cpu {
namespace {

GemmSpec spec_of(const NodeView& view) {
  const auto& attrs = view.attrs<GemmAttrs>();
  const TensorType &a = view.in(octet::Gemm::a), &b = view.in(octet::Gemm::b);
  const Shape& y = view.out(octet::Gemm::y).shape;
  GemmSpec spec;
  spec.m = y[0];
  spec.n = y[1];
  spec.k = read_shape(a, attrs.trans_a)[1];
  spec.a = a.dtype;
  spec.b = b.dtype;
  spec.c = view.out(octet::Gemm::y).dtype;
  spec.trans_a = reads_transposed(a, attrs.trans_a) ? Transpose::yes : Transpose::no;
  spec.trans_b = reads_transposed(b, attrs.trans_b) ? Transpose::yes : Transpose::no;
  return spec;
}

// Factors f32, bf16, or codes of one scale, which the kernel decodes exactly; the result is f32 or
// bf16.
bool gemm_applies(const NodeView& view) {
  const auto factor = [](const TensorType& type) {
    return (is_f32_or_bf16(type.dtype) || is_gemm_operand(type.dtype)) && scale_tile(type).is_all();
  };
  const bool addend = !view.has(octet::Gemm::c) || is_f32_or_bf16(view.in(octet::Gemm::c).dtype);
  return factor(view.in(octet::Gemm::a)) && factor(view.in(octet::Gemm::b)) &&
         is_f32_or_bf16(view.out(octet::Gemm::y).dtype) && addend;
}

int64_t gemm_scratch(const NodeView& view) {
  return static_cast<int64_t>(Gemm(spec_of(view), view.target.n_threads).scratch_bytes());
}

LaunchFn gemm_prepare(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  const Gemm gemm(spec_of(view), pool.n_threads());
  const bool is_row = view.has(octet::Gemm::c) && is_bias_row(view.in(octet::Gemm::c));
  return [gemm, is_row, types = NodeTypes(view), &pool](const LaunchArgs& args) {
    GemmArgs call;
    call.a = args.operands[octet::Gemm::a];
    call.b = args.operands[octet::Gemm::b];
    call.c = args.results[octet::Gemm::y];
    call.scale_a = data<float>(args, octet::Gemm::scale_a);
    call.scale_b = data<float>(args, octet::Gemm::scale_b);
    (is_row ? call.bias : call.addend) = types.operand(args, octet::Gemm::c);
    call.scratch = args.scratch;
    gemm.launch(call, pool);
  };
}

// One matrix of the batch.
GemmSpec batched_spec(const NodeView& view) {
  using S = BatchedGemm;
  const auto& attrs = view.attrs<BatchedGemmAttrs>();
  const Shape &a = view.in(S::a).shape, &y = view.out(S::y).shape;
  return {.m = y[1],
          .n = y[2],
          .k = a[attrs.trans_a ? 1 : 2],
          .a = view.in(S::a).dtype,
          .b = view.in(S::b).dtype,
          .c = view.out(S::y).dtype,
          .trans_a = attrs.trans_a ? Transpose::yes : Transpose::no,
          .trans_b = attrs.trans_b ? Transpose::yes : Transpose::no};
}

int64_t batched_scratch(const NodeView& view) {
  const Gemm gemm(batched_spec(view), view.target.n_threads);
  return static_cast<int64_t>(gemm.scratch_bytes());
}

// One after another, each as if it were alone: bits do not depend on the batch.
LaunchFn batched_prepare(const NodeView& view, Context& context) {
  using S = BatchedGemm;
  ThreadPool& pool = context.pool;
  const GemmSpec spec = batched_spec(view);
  const Gemm gemm(spec, pool.n_threads());
  return [=, types = NodeTypes(view), n = view.out(S::y).shape[0],
          factor = static_cast<float>(view.attrs<BatchedGemmAttrs>().factor),
          has_c = view.has(S::c), &pool](const LaunchArgs& args) {
    const auto at = [](auto* from, Dtype dtype, int64_t n_elems) {
      return from + bytes_of(dtype, n_elems);
    };
    for (int64_t i = 0; i < n; ++i) {
      GemmArgs call;
      call.a = at(args.operands[S::a], spec.a, i * spec.m * spec.k);
      call.b = at(args.operands[S::b], spec.b, i * spec.n * spec.k);
      call.c = at(args.results[S::y], spec.c, i * spec.m * spec.n);
      call.alpha = &factor;
      if (has_c)
        call.addend = {at(args.operands[S::c], types.in[S::c], i * spec.m * spec.n),
                       types.in[S::c]};
      call.scratch = args.scratch;
      gemm.launch(call, pool);
    }
  };
}

const Binding kGemmBindings[] = {
    {{OpCode::gemm, "simd", gemm_applies, gemm_scratch}, gemm_prepare},
    {{OpCode::batched_gemm, "simd", all_f32_or_bf16, batched_scratch}, batched_prepare}};

}  // namespace

std::span<const Binding> gemm_bindings() {
  return kGemmBindings;
}

}  // namespace octet::cpu
