#include "backends/cuda/params/attention.h"

#include <algorithm>

#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {
namespace {

bool has_documents(const NodeView& view) {
  const bool gradient = view.node.op == OpCode::attention_grad;
  return view.has(gradient ? SlotId{AttentionGrad::doc_starts} : SlotId{Attention::doc_starts});
}

AttentionParams attention_params(const NodeView& view) {
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
  p.documents = has_documents(view);
  p.capacity = a.capacity;
  p.window = a.window < std::max(a.seq, a.capacity) ? a.window : 0;  // a longer one hides nothing
  return p;
}

// Everything but log-sum-exp is of one type.
bool applies(const NodeView& view) {
  const bool gradient = view.node.op == OpCode::attention_grad;
  const Dtype dtype = view.in(attention_matrices(view).front()).dtype;
  const auto& attrs = view.attrs<AttentionAttrs>();
  bool same = is_wide_or_half(dtype) && attrs.head_dim <= kMaxHeadDim;
  for (const SlotId i : attention_matrices(view)) same = same && view.in(i).dtype == dtype;
  for (size_t i = 0; i < (gradient ? 3u : 1u); ++i) same = same && view.out(i).dtype == dtype;
  const TensorType& lse = gradient ? view.in(AttentionGrad::lse) : view.out(Attention::lse);
  return same && lse.dtype == Dtype::f32;
}

// What the kernel's name tells beside its types.
std::string_view attention_variant(const NodeView& view) {
  const AttentionParams p = attention_params(view);
  if (p.capacity > 0) return p.window > 0 ? "cached window" : "cached";
  if (p.documents) return p.window > 0 ? "documents window" : "documents";
  return p.window > 0 ? "window" : "";
}

int64_t forward_scratch(const NodeView& view) {
  const AttentionParams p = attention_params(view);
  return p.capacity > 0 ? 0 : attention_scratch_bytes(p);
}
int64_t backward_scratch(const NodeView& view) {
  return attention_grad_scratch_bytes(attention_params(view));
}
int64_t backward_deterministic_bytes(const NodeView& view) {
  return attention_dp_bytes(attention_params(view));
}

KernelSpec forward_spec(const NodeView& view) {
  const AttentionParams p = attention_params(view);
  return make_spec(p.capacity > 0 ? KernelId::attention_cached : KernelId::attention, p);
}
KernelSpec backward_spec(const NodeView& view) {
  return make_spec(KernelId::attention_grad, attention_params(view));
}

const Binding kAttentionBindings[] = {
    {OpCode::attention, applies, forward_scratch, forward_spec, nullptr, attention_variant},
    {OpCode::attention_grad, applies, backward_scratch, backward_spec, backward_deterministic_bytes,
     attention_variant},
};

}  // namespace

std::span<const Binding> attention_bindings() {
  return kAttentionBindings;
}

}  // namespace octet::cuda
