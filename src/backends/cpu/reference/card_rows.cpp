// Activations, element by element.
#include "backends/cpu/reference/card.h"
#include "math/activation.h"

namespace octet::reference {
namespace {

float at(const RefCall& call, size_t slot, size_t i) {
  return static_cast<float>(call.in[slot].data[i]);
}

}  // namespace

void card_gated_act(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i)
    call.out[0].data[i] = gated_silu(at(call, GatedAct::gate, i), at(call, GatedAct::up, i));
}
void card_gated_act_grad(const RefCall& call) {
  using Op = GatedActGrad;
  for (size_t i = 0; i < call.out[Op::dgate].data.size(); ++i) {
    const GatedGrad d = gated_grad(at(call, Op::dy, i), at(call, Op::gate, i), at(call, Op::up, i));
    call.out[Op::dgate].data[i] = d.gate, call.out[Op::dup].data[i] = d.up;
  }
}
void card_gelu(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i)
    call.out[0].data[i] = gelu_tanh(at(call, 0, i));
}
void card_gelu_grad(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i)
    call.out[0].data[i] = at(call, 0, i) * gelu_tanh_slope(at(call, 1, i));
}

}  // namespace octet::reference
