// Rotary position embedding, the rotate-half convention. Source: Su et al. 2021, Hugging Face's
// layout. For each head and i < dh/2, with (c, s) the cosine and sine of the row's position:
//   y[i] = x[i] c - x[i + dh/2] s        y[i + dh/2] = x[i + dh/2] c + x[i] s
// The inverse turns back (s negated), which is also the gradient.
//   x, y: [tokens, heads * dh], dense    positions: [tokens] i32
//   cos, sin: [max_pos, dh/2] f32, of the positions below max_pos    frequencies: [dh/2], radians
// The angles of other positions are made from the frequencies as those of the tables are: in
// double, rounded once. f32 inside, one rounding on store. y may alias x.
#pragma once

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

class AmaxSink;  // amax_sink.h

enum class Rotation { forward, inverse };

struct Rope {
  In x = {};
  Out y = {};
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int32_t* positions = nullptr;
  Rotation rotation = Rotation::forward;
  AmaxSink* amax = nullptr;  // of y, as it is stored
  const double* frequencies = nullptr;
};
struct RopeShape {
  int64_t tokens = 0, heads = 0, head_size = 0, max_positions = 0;  // head_size is even
  int64_t cols() const { return heads * head_size; }
};
// Some pairs of each head, [begin, begin + n), and their cosines and sines.
struct RopeTurns {
  const float* cos;
  const float* sin;
  int64_t begin, n;
};
void rope(const Rope& args, const RopeShape& shape, ThreadPool& pool);

}  // namespace octet::cpu
