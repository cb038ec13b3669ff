// Activations and rope, element by element.
#include <cmath>

#include "backends/cpu/reference/card.h"
#include "ir/ops/quantize_layers.h"
#include "ir/ops/rope.h"

namespace octet::reference {
namespace {

float at(const RefCall& call, size_t slot, size_t i) {
  return static_cast<float>(call.in[slot].data[i]);
}

}  // namespace

void card_activation(const RefCall& call) {
  const RowLayer layer = row_layer(OpCode::gated_act, call.attrs);
  const bool gated = layer == RowLayer::gated_silu;
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    const float up = gated ? at(call, GatedAct::up, i) : 0;
    call.out[0].data[i] = activation(layer, at(call, GatedAct::gate, i), up);
  }
}
void card_activation_grad(const RefCall& call) {
  using Op = GatedActGrad;
  const RowLayer layer = row_layer(OpCode::gated_act_grad, call.attrs);
  const bool gated = layer == RowLayer::gated_silu;
  for (size_t i = 0; i < call.out[Op::dgate].data.size(); ++i) {
    const float up = gated ? at(call, Op::up, i) : 0;
    const GatedGrad d = activation_gradient(layer, at(call, Op::dy, i), at(call, Op::gate, i), up);
    call.out[Op::dgate].data[i] = d.gate;
    if (gated) call.out[Op::dup].data[i] = d.up;
  }
}

void card_rope(const RefCall& call) {
  const auto& a = std::get<RopeAttrs>(call.attrs);
  const std::vector<double> frequencies = rope_frequencies(a);
  const size_t half = frequencies.size(), heads = size(a.heads);
  for (size_t r = 0; r < dim(call.in[0], 0); ++r) {
    for (size_t i = 0; i < half; ++i) {
      const SineCosine angle = sine_cosine_exact(call.in[1].data[r] * frequencies[i]);
      const float cosine = angle.cosine, sine = a.inverse ? -1.0f * angle.sine : angle.sine;
      for (size_t head = 0; head < heads; ++head) {
        const size_t to = (r * heads + head) * 2 * half + i;
        const float low = at(call, 0, to), high = at(call, 0, to + half);
        call.out[0].data[to] = std::fma(-high, sine, low * cosine);
        call.out[0].data[to + half] = std::fma(low, sine, high * cosine);
      }
    }
  }
}

}  // namespace octet::reference
