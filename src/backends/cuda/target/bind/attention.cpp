#include "backends/cuda/params/attention.h"

#include "backends/cuda/rows/attention.h"
#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {
namespace {

bool is_gradient(const NodeView& view) {
  return op_def(view.node.op).is_gradient;
}

AttentionParams attention_params(const NodeView& view) {
  const auto& a = view.attrs<AttentionAttrs>();
  AttentionParams p;
  p.batch = a.batch;
  p.seq = a.q_len;
  p.heads = a.heads;
  p.kv_heads = a.kv_heads;
  p.head_dim = a.head_dim;
  p.scale = static_cast<float>(a.scale);
  p.dtype = view.out(0).dtype;
  p.causal = a.mask == AttentionMask::causal;
  p.documents = view.has(attention_slots(view).key_begins);
  p.capacity = is_cached_attention(view) ? a.kv_len : 0;
  p.window = a.window < a.kv_len ? a.window : 0;  // a longer one hides nothing
  return p;
}

// Causal attention, with a window and of documents or without, and full attention without either.
bool mask_applies(const NodeView& view) {
  const auto& a = view.attrs<AttentionAttrs>();
  const AttentionSlots slots = attention_slots(view);
  const bool is_causal = a.mask == AttentionMask::causal;
  return (is_causal || (a.window == 0 && !view.has(slots.key_begins))) &&
         !view.has(slots.key_ends) && !view.has(slots.bias) &&
         (is_cached_attention(view) || a.q_len == a.kv_len);
}
// Everything but log-sum-exp is of one type.
bool attention_applies(const NodeView& view) {
  if (!mask_applies(view)) return false;
  const auto dtype = attention_dtype(view);
  const TensorType& lse =
      is_gradient(view) ? view.in(AttentionGrad::lse) : view.out(Attention::lse);
  return dtype && is_wide_or_half(*dtype) && view.attrs<AttentionAttrs>().head_dim <= kMaxHeadDim &&
         lse.dtype == Dtype::f32;
}

int64_t library_scratch(const NodeView& view) {
  const AttentionParams p = attention_params(view);
  if (!is_gradient(view)) return kAttentionSlack;
  return attention_grad_scratch_bytes(p) + (view.target.deterministic ? attention_dp_bytes(p) : 0);
}
// Sums of do * o, of ours.
int64_t delta_scratch(const NodeView& view) {
  return 4 * attention_rows(attention_params(view));
}

bool library_applies(const NodeView& view) {
  if (!attention_applies(view) || view.target.dnn.empty()) return false;
  const AttentionParams p = attention_params(view);
  const bool repeats =
      !is_gradient(view) || !view.target.deterministic || attention_dp_bytes(p) > 0;
  return p.capacity == 0 && library_may_take(p) && repeats;
}
bool tensor_applies(const NodeView& view) {
  if (!attention_applies(view)) return false;
  const AttentionParams p = attention_params(view);
  return is_gradient(view) ? tensor_gradient_takes(p, view.target.capability)
                           : tensor_cores_take(p);
}
bool cached_applies(const NodeView& view) {
  return attention_applies(view) && is_cached_attention(view);
}
bool plain_applies(const NodeView& view) {
  return attention_applies(view) && !is_cached_attention(view);
}

template <KernelId kKernel>
KernelSpec attention_spec(const NodeView& view) {
  return make_spec(kKernel, attention_params(view));
}

const Binding kAttentionBindings[] = {
    {{OpCode::attention, "cudnn", library_applies, library_scratch},
     attention_spec<KernelId::attention_library>},
    {{OpCode::attention, "tensor cores", tensor_applies},
     attention_spec<KernelId::attention_tensor>},
    {{OpCode::attention, "cached", cached_applies}, attention_spec<KernelId::attention_cached>},
    {{OpCode::attention, "plain", plain_applies, nullptr, {.generic = true}},
     attention_spec<KernelId::attention_plain>},
    {{OpCode::attention_grad, "cudnn", library_applies, library_scratch},
     attention_spec<KernelId::attention_library_grad>},
    {{OpCode::attention_grad, "tensor cores", tensor_applies, delta_scratch},
     attention_spec<KernelId::attention_tensor_grad>},
    {{OpCode::attention_grad, "plain", plain_applies, delta_scratch, {.generic = true}},
     attention_spec<KernelId::attention_plain_grad>},
};

}  // namespace

std::span<const Binding> attention_bindings() {
  return kAttentionBindings;
}

}  // namespace octet::cuda
