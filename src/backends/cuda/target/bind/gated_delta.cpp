#include <algorithm>

#include "backends/cuda/rows/gated_delta.h"
#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/choose/gated_delta.h"

namespace octet::cuda {
namespace {

// kFirst: the slot of q, which those of GatedDelta follow.
template <SlotId kFirst>
GatedDeltaParams delta_operands(const NodeView& view) {
  using Op = octet::GatedDelta;
  const auto& attrs = view.attrs<GatedDeltaAttrs>();
  const auto in = [&](SlotId slot) -> const TensorType& { return view.in(kFirst + slot); };
  GatedDeltaParams p;
  p.batch = attrs.batch;
  p.key_heads = attrs.key_heads;
  p.seq = in(Op::q).shape[0] / attrs.batch;
  p.heads = in(Op::beta).shape[1];
  p.key_dim = in(Op::q).shape[1] / attrs.key_heads;
  p.value_dim = in(Op::v).shape[1] / p.heads;
  p.q = in(Op::q).dtype, p.k = in(Op::k).dtype, p.v = in(Op::v).dtype;
  p.log_decay = in(Op::log_decay).dtype, p.beta = in(Op::beta).dtype;
  p.has_documents = view.has(kFirst + Op::doc_starts);
  return p;
}
GatedDeltaParams delta_params(const NodeView& view) {
  using Op = octet::GatedDelta;
  GatedDeltaParams p = delta_operands<Op::q>(view);
  p.o = view.out(Op::o).dtype;
  p.has_state = view.has(Op::state);
  if (p.has_state) p.state = view.in(Op::state).dtype;
  if (view.gives(Op::next_state)) p.next_state = view.out(Op::next_state).dtype;
  return p;
}
GatedDeltaParams delta_grad_params(const NodeView& view) {
  using Op = octet::GatedDeltaGrad;
  GatedDeltaParams p = delta_operands<Op::q>(view);
  p.dout = view.in(Op::dout).dtype;
  p.dq = view.out(Op::dq).dtype, p.dk = view.out(Op::dk).dtype, p.dv = view.out(Op::dv).dtype;
  p.dlog_decay = view.out(Op::dlog_decay).dtype, p.dbeta = view.out(Op::dbeta).dtype;
  return p;
}

// True if all but doc_starts is f32, bf16 or fp16.
bool delta_types_fit(const NodeView& view, SlotId doc_starts) {
  bool fits = true;
  for (SlotId i = 0; i < view.node.operands.size(); ++i)
    if (i != doc_starts && view.has(i)) fits = fits && is_high_precision(view.in(i).dtype);
  for (SlotId i = 0; i < view.node.results.size(); ++i)
    if (view.gives(i)) fits = fits && is_high_precision(view.out(i).dtype);
  return fits;
}

bool is_one_token(const NodeView& view) {
  if (!delta_types_fit(view, octet::GatedDelta::doc_starts)) return false;
  const GatedDeltaParams p = delta_params(view);
  return is_delta_step(p) && p.key_dim <= kMaxDeltaDim;
}
bool delta_applies(const NodeView& view) {
  return delta_types_fit(view, octet::GatedDelta::doc_starts) &&
         delta_takes(delta_params(view), view.target.capability);
}
bool delta_grad_applies(const NodeView& view) {
  return delta_types_fit(view, octet::GatedDeltaGrad::doc_starts) &&
         delta_takes(delta_grad_params(view), view.target.capability);
}
template <auto kParams, bool kIsGradient>
int64_t delta_bytes(const NodeView& view) {
  return 4 * delta_scratch(kParams(view), kIsGradient).floats;
}
template <KernelId kKernel, auto kParams>
KernelSpec delta_spec(const NodeView& view) {
  return launching(make_spec(kKernel, kParams(view)), delta_launches(kKernel));
}

const Binding kDeltaBindings[] = {
    {{OpCode::gated_delta, "one token", is_one_token},
     delta_spec<KernelId::gated_delta_step, delta_params>},
    {{OpCode::gated_delta, "chunks", delta_applies, delta_bytes<delta_params, false>},
     delta_spec<KernelId::gated_delta, delta_params>},
    {{OpCode::gated_delta_grad, "chunks", delta_grad_applies, delta_bytes<delta_grad_params, true>},
     delta_spec<KernelId::gated_delta_grad, delta_grad_params>},
};

}  // namespace

std::span<const Binding> gated_delta_bindings() {
  return kDeltaBindings;
}

}  // namespace octet::cuda
