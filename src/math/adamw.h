// One element of AdamW (Loshchilov & Hutter 2019) in f32, and the split of an f32 master into a
// BF16 weight and a remainder.
//
// Evaluation order, the contract on every back end (no contraction, nothing fused):
//   g = g * grad_scale
//   m = b1*m + (1-b1)*g                     v = b2*v + ((1-b2)*g)*g
//   w = w - lr*( (m/c1) / (sqrt(v/c2) + eps) + wd*w )        c1 = 1-b1^t, c2 = 1-b2^t; the old w,
//   the new m and v
// b, eps and wd are rounded to f32; 1-b is the f32 difference.
#pragma once

#include <cmath>
#include <cstdint>

#include "formats/bits.h"

namespace octet {

struct AdamwConstants {
  float beta1, beta2, eps, weight_decay;
  float lr, c1, c2, grad_scale;
};

struct AdamwElement {
  float w, m, v;
};

OCTET_HOST_DEVICE inline AdamwElement adamw_element(const AdamwConstants& k, AdamwElement old,
                                                    float gradient) {
  const float g = gradient * k.grad_scale;
  const float m = k.beta1 * old.m + (1.0f - k.beta1) * g;
  const float v = k.beta2 * old.v + ((1.0f - k.beta2) * g) * g;
  const float step = (m / k.c1) / (std::sqrt(v / k.c2) + k.eps);
  return {old.w - k.lr * (step + k.weight_decay * old.w), m, v};
}

// (hi << 16) + lo are the bits of the master, exactly. hi is the master rounded half up in the bit
// pattern, so lo always fits. A NaN keeps its upper half, made quiet, with lo = 0.
struct MasterBits {
  uint16_t hi;
  int16_t lo;
};

OCTET_HOST_DEVICE constexpr MasterBits split_master(float master) {
  const uint32_t bits = bits_of(master);
  if (is_nan(master)) return {static_cast<uint16_t>((bits >> 16) | 0x40u), 0};
  const auto hi = static_cast<uint16_t>((bits + 0x8000u) >> 16);
  return {hi, static_cast<int16_t>(static_cast<uint16_t>(bits & 0xFFFFu))};
}

OCTET_HOST_DEVICE constexpr float join_master(MasterBits parts) {
  const auto lo = static_cast<uint32_t>(static_cast<int32_t>(parts.lo));  // sign kept
  return float_of((static_cast<uint32_t>(parts.hi) << 16) + lo);
}

}  // namespace octet
