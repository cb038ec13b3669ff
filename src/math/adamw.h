// One element of AdamW (Loshchilov & Hutter 2019) in f32, and the random words of its roundings.
//
// Evaluation order, the contract on every back end (no contraction, nothing fused):
//   g = g * grad_scale
//   m = b1*m + (1-b1)*g                     v = b2*v + ((1-b2)*g)*g
//   w = w - lr*( (m/c1) / (sqrt(v/c2) + eps) + wd*w )        c1 = 1-b1^t, c2 = 1-b2^t; the old w,
//   the new m and v
// b, eps and wd are rounded to f32; 1-b is the difference in f64, rounded: that of the rounded b is
// off by up to 2^-25 / (1-b), and the bias corrections do not follow it. m and v are what storage
// decodes to; how they are stored again is math/moment.h, how w is stored math/master.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/philox.h"
#include "math/master.h"

namespace octet {

struct AdamwConstants {
  float beta1, beta2, rest1, rest2;  // rest: 1-b
  float eps, weight_decay;
  float lr, c1, c2, grad_scale;
};

OCTET_HOST_DEVICE inline float rest_of(double beta) {
  return static_cast<float>(1 - beta);
}

struct AdamwElement {
  float w, m, v;
};

OCTET_HOST_DEVICE inline AdamwElement adamw_element(const AdamwConstants& k, AdamwElement old,
                                                    float gradient) {
  const float g = gradient * k.grad_scale;
  const float m = k.beta1 * old.m + k.rest1 * g;
  const float v = k.beta2 * old.v + (k.rest2 * g) * g;
  const float step = (m / k.c1) / (std::sqrt(v / k.c2) + k.eps);
  return {old.w - k.lr * (step + k.weight_decay * old.w), m, v};
}

// Which result of the update a random word rounds.
enum class UpdateDraw : uint8_t { weight, first, second };

// The words of one parameter's update: keyed by the parameter's name with ":w", ":m" or ":v" behind
// it (FNV-1a goes on from `name`, the hash of the parameter's name), the run's seed, the attempted
// step and micro-batch 0, and counted by the element's index in the whole tensor. So the three
// draws of an element are independent, and none equals the words that initialised the parameter.
OCTET_HOST_DEVICE constexpr RandomStream update_stream(uint64_t name, uint32_t seed,
                                                       uint32_t attempt, UpdateDraw draw) {
  const char letter = draw == UpdateDraw::weight ? 'w' : draw == UpdateDraw::first ? 'm' : 'v';
  name = continue_hash(continue_hash(name, ':'), letter);
  return {.name = name, .seed = seed, .step = attempt, .micro_batch = 0};
}

}  // namespace octet
