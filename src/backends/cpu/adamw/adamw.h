// One AdamW step on n elements, with f32 moments. Source: Loshchilov & Hutter 2019; evaluation
// order, in f32 without fused multiply-add, the same on every back end:
//   g = grad * grad_scale    m = b1 m + (1-b1) g    v = b2 v + ((1-b2) g) g
//   w = w - lr ((m / c1) / (sqrt(v / c2) + eps) + wd w)      with c1 = 1 - b1^t, c2 = 1 - b2^t
// Weights are f32, or bf16_remainder: `weight` bf16 holds bits(w) + 0x8000 >> 16 (half up),
// `remainder` i16 the difference, together exactly the f32 master; NaN keeps a NaN weight and
// remainder 0. Bit-identical for any Isa and thread count. Where *skip != 0 no byte changes.
#pragma once

#include "backends/cpu/common/operand.h"
#include "backends/cpu/elementwise/amax_sink.h"

namespace octet::cpu {

// Read at launch; they change from step to step.
struct AdamWScalars {
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  float correction1 = 1, correction2 = 1;
  float grad_scale = 1;
};

struct AdamW {
  In grad = {};                  // f32 or bf16
  Out weight = {};               // f32, or bf16 with a remainder
  int16_t* remainder = nullptr;  // with a bf16 weight
  float* m = nullptr;
  float* v = nullptr;
  Out copy = {};  // optional: the new weight once more, rounded to nearest even in its type
  const uint8_t* skip = nullptr;
  AmaxSink* amax = nullptr;  // of the weight as it is afterwards
};
// Throws invalid_argument on a bf16 weight without a remainder.
void adamw_step(const AdamW& args, const AdamWScalars& scalars, int64_t n, ThreadPool& pool);

}  // namespace octet::cpu
