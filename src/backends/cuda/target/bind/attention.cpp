#include "backends/cuda/params/attention.h"

#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {
namespace {

AttentionParams params_of(const NodeView& view) {
  const auto& a = view.attrs<AttentionAttrs>();
  AttentionParams p;
  p.batch = a.batch;
  p.seq = a.seq;
  p.heads = a.heads;
  p.kv_heads = a.kv_heads;
  p.head_dim = a.head_dim;
  p.scale = static_cast<float>(a.scale);
  p.dtype = view.in(attention_matrices(view).front()).dtype;
  p.causal = a.causal;
  return p;
}

// Everything but log-sum-exp is of one type; rows are not divided into documents.
bool applies(const NodeView& view) {
  const bool gradient = view.node.op == OpCode::attention_grad;
  if (view.has(gradient ? SlotId{AttentionGrad::doc_starts} : SlotId{Attention::doc_starts}))
    return false;
  const Dtype dtype = view.in(attention_matrices(view).front()).dtype;
  const auto& attrs = view.attrs<AttentionAttrs>();
  if (attrs.capacity > 0 || attrs.window > 0) return false;  // by simpler ops, where there are
  bool same = is_wide_or_half(dtype) && attrs.head_dim <= kMaxHeadDim;
  for (const SlotId i : attention_matrices(view)) same = same && view.in(i).dtype == dtype;
  for (size_t i = 0; i < (gradient ? 3u : 1u); ++i) same = same && view.out(i).dtype == dtype;
  const TensorType& lse = gradient ? view.in(AttentionGrad::lse) : view.out(Attention::lse);
  return same && lse.dtype == Dtype::f32;
}

int64_t forward_scratch(const NodeView& view) {
  return attention_scratch_bytes(params_of(view));
}
int64_t backward_scratch(const NodeView& view) {
  return attention_grad_scratch_bytes(params_of(view));
}
int64_t backward_deterministic_bytes(const NodeView& view) {
  return attention_dp_bytes(params_of(view));
}

KernelSpec forward_spec(const NodeView& view) {
  return make_spec(KernelId::attention, params_of(view));
}
KernelSpec backward_spec(const NodeView& view) {
  return make_spec(KernelId::attention_grad, params_of(view));
}

const Binding kBindings[] = {
    {OpCode::attention, applies, forward_scratch, forward_spec},
    {OpCode::attention_grad, applies, backward_scratch, backward_spec,
     backward_deterministic_bytes},
};

}  // namespace

std::span<const Binding> attention_bindings() {
  return kBindings;
}

}  // namespace octet::cuda
