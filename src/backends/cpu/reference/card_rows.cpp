// Activations and rope, element by element.
#include <cmath>

#include "backends/cpu/reference/card.h"
#include "ir/ops/rope.h"
#include "math/activation.h"

namespace octet::reference {
namespace {

float at(const RefCall& call, size_t slot, size_t i) {
  return static_cast<float>(call.in[slot].data[i]);
}
bool is_tanh(const RefCall& call) {
  return std::get<GeluAttrs>(call.attrs).kind == GeluKind::tanh;
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
  const auto value = is_tanh(call) ? gelu_tanh : gelu_erf;
  for (size_t i = 0; i < call.out[0].data.size(); ++i) call.out[0].data[i] = value(at(call, 0, i));
}
void card_gelu_grad(const RefCall& call) {
  const auto slope = is_tanh(call) ? gelu_tanh_slope : gelu_erf_slope;
  for (size_t i = 0; i < call.out[0].data.size(); ++i)
    call.out[0].data[i] = at(call, 0, i) * slope(at(call, 1, i));
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
