#include "backends/cuda/params/attention.h"

#include <algorithm>

#include "backends/cuda/rows/attention.h"
#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/chains.h"
#include "backends/cuda/target/choose/attention.h"

namespace octet::cuda {
namespace {

bool is_gradient(const NodeView& view) {
  return op_def(view.node.op).is_gradient;
}

AttentionParams attention_params(const NodeView& view) {
  const auto& a = view.attrs<AttentionAttrs>();
  const AttentionSlots slots = attention_slots(view);
  AttentionParams p;
  p.batch = a.batch;
  p.q_len = a.q_len;
  p.kv_len = a.kv_len;
  p.heads = a.heads;
  p.kv_heads = a.kv_heads;
  p.head_dim = a.head_dim;
  p.scale = static_cast<float>(a.scale);
  p.dtype = view.out(0).dtype;
  p.causal = a.mask == AttentionMask::causal;
  p.key_begins = view.has(slots.key_begins);
  p.key_ends = view.has(slots.key_ends);
  p.cached = is_cached_attention(view);
  p.reads_ahead = p.cached && chain_reads_ahead(view);
  // A longer one hides nothing.
  p.window = a.window < std::max(a.q_len, a.kv_len) ? a.window : 0;
  if (!view.has(slots.bias)) return p;
  const TensorType& bias = view.in(slots.bias);
  const int64_t n[] = {bias.shape[0], bias.shape[1], bias.shape[2]};
  p.bias = {.batch = n[0] == 1 ? 0 : n[1] * n[2] * a.kv_len,
            .head = n[1] == 1 ? 0 : n[2] * a.kv_len,
            .query = n[2] == 1 ? 0 : a.kv_len,
            .dtype = bias.dtype,
            .is_there = true,
            .has_gradient = a.bias_gradient};
  return p;
}

// Everything but log-sum-exp, and a bias that may be f32, is of one type. No kernel caps scores:
// such an attention runs as its decomposition.
bool attention_applies(const NodeView& view) {
  const auto dtype = attention_dtype(view);
  const TensorType& lse =
      is_gradient(view) ? view.in(AttentionGrad::lse) : view.out(Attention::lse);
  if (!dtype || !is_high_precision(*dtype) || lse.dtype != Dtype::f32 ||
      view.attrs<AttentionAttrs>().softcap != 0 ||
      view.attrs<AttentionAttrs>().head_dim > kMaxHeadDim)
    return false;
  const AttentionParams p = attention_params(view);
  if (!p.bias.is_there) return true;
  const bool is_stored = p.bias.dtype == *dtype || p.bias.dtype == Dtype::f32;
  return is_stored &&
         (!p.bias.has_gradient || view.out(AttentionGrad::dbias).dtype == p.bias.dtype);
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
  return library_may_take(p) && repeats;
}
bool tensor_applies(const NodeView& view) {
  if (!attention_applies(view)) return false;
  const AttentionParams p = attention_params(view);
  return is_gradient(view) ? tensor_gradient_takes(p, view.target.capability)
                           : tensor_cores_take(p);
}
bool cached_applies(const NodeView& view) {
  return attention_applies(view) && cached_takes(attention_params(view));
}
int64_t cached_scratch(const NodeView& view) {
  AttentionParams p = attention_params(view);
  choose_kernels(p);
  return cached_scratch_bytes(p);
}
bool plain_applies(const NodeView& view) {
  return attention_applies(view) && !is_cached_attention(view) &&
         plain_takes(attention_params(view), is_gradient(view), view.target.capability);
}

template <KernelId kKernel>
KernelSpec attention_spec(const NodeView& view) {
  AttentionParams p = attention_params(view);
  choose_kernels(p);
  KernelSpec spec = make_spec(kKernel, p);
  spec.launches = launches_of(kKernel, p);
  return spec;
}

const Binding kAttentionBindings[] = {
    {{OpCode::attention, "cudnn", library_applies, library_scratch},
     attention_spec<KernelId::attention_library>},
    {{OpCode::attention, "tensor cores", tensor_applies},
     attention_spec<KernelId::attention_tensor>},
    {{.op = OpCode::attention,
      .name = "cached",
      .applies = cached_applies,
      .scratch = cached_scratch,
      .chain_kernel = chain_kernel},
     attention_spec<KernelId::attention_cached>},
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
