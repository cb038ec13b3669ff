#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/kernels.h"
#include "math/adamw.h"

namespace octet::reference {
namespace {

float scalar(const RefCall& call, size_t i) {
  return static_cast<float>(call.in[i].data[0]);
}

AdamwConstants constants(const RefCall& call) {
  const auto& a = std::get<AdamwAttrs>(call.attrs);
  return {.beta1 = static_cast<float>(a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .eps = static_cast<float>(a.eps),
          .weight_decay = static_cast<float>(a.weight_decay),
          .lr = scalar(call, 4),
          .c1 = scalar(call, 5),
          .c2 = scalar(call, 6),
          .grad_scale = scalar(call, 7)};
}

// A bf16 weight held as a double has the upper half of its f32's bits and no lower half.
float master_of(double w, std::span<const double> w_lo, size_t i) {
  const auto weight = static_cast<float>(w);
  if (w_lo.empty()) return weight;
  return join_master({static_cast<uint16_t>(bits_of(weight) >> 16), static_cast<int16_t>(w_lo[i])});
}

}  // namespace

void global_norm(const RefCall& call) {
  double sum = 0;
  for (size_t i = 1; i < call.in.size(); ++i) {
    for (const double g : call.in[i].data) sum += g * g;
  }
  const double norm = std::sqrt(sum);
  const double clip = call.in[0].data[0];
  call.out[0].data[0] = norm;
  call.out[1].data[0] = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
  call.out[2].data[0] = std::isfinite(norm) ? 0 : 1;
}

void adamw_step(const RefCall& call) {
  const auto w_lo = optional(call.in, 9);
  const auto w = call.in[0].data, m = call.in[2].data, v = call.in[3].data;
  if (call.in[8].data[0] != 0) {
    std::copy(w.begin(), w.end(), call.out[0].data.begin());
    std::copy(m.begin(), m.end(), call.out[1].data.begin());
    std::copy(v.begin(), v.end(), call.out[2].data.begin());
    if (!w_lo.empty()) std::copy(w_lo.begin(), w_lo.end(), call.out[3].data.begin());
    return;
  }
  const AdamwConstants k = constants(call);
  for (size_t i = 0; i < w.size(); ++i) {
    const AdamwElement old{master_of(w[i], w_lo, i), static_cast<float>(m[i]),
                           static_cast<float>(v[i])};
    const AdamwElement next = adamw_element(k, old, static_cast<float>(call.in[1].data[i]));
    call.out[1].data[i] = next.m;
    call.out[2].data[i] = next.v;
    if (w_lo.empty()) {
      call.out[0].data[i] = next.w;
    } else {
      const MasterBits parts = split_master(next.w);
      call.out[0].data[i] = float_of(static_cast<uint32_t>(parts.hi) << 16);
      call.out[3].data[i] = parts.lo;
    }
  }
}

}  // namespace octet::reference
