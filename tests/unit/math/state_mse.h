// How much a pair of quantized moments disturbs AdamW's direction: the mean square of
//   d_i = m_i / (sqrt(v_i) + eps) - m'_i / (sqrt(v'_i) + eps)
// with m, v in f32 and m', v' what their stored forms decode to, in double. Source: Xi et al.,
// COAT, ICLR 2025, tables 1 and 8.
#pragma once

#include <cmath>
#include <span>

#include "math/state_error.h"

namespace octet {

inline double state_mse(std::span<const float> m, std::span<const float> v, MomentKind first,
                        MomentKind second) {
  constexpr int64_t kGroup = 128;
  const auto stored = [](std::span<const float> x, MomentKind kind, Moment moment) {
    // DE8 has a signed form for m and an unsigned one for v.
    const bool is_de8_of_v = kind.dtype == Dtype::de8s && moment == Moment::second;
    return store_and_load({.dtype = is_de8_of_v ? Dtype::de8u : kind.dtype,
                           .moment = moment,
                           .expand = kind.expand,
                           .math = MathMode::exact},
                          kGroup, x);
  };
  const auto direction = [](float m_i, float v_i) {
    return static_cast<double>(m_i) / (std::sqrt(static_cast<double>(v_i)) + 1e-8);
  };
  const auto stored_m = stored(m, first, Moment::first);
  const auto stored_v = stored(v, second, Moment::second);
  double sum = 0;
  for (size_t i = 0; i < m.size(); ++i) {
    const double d = direction(m[i], v[i]) - direction(stored_m[i], stored_v[i]);
    sum += d * d;
  }
  return sum / static_cast<double>(m.size());
}

}  // namespace octet
