// Losses of quantized moments: values as their stored forms decode to (math/moment.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "math/moment.h"

namespace octet {

struct MomentKind {
  Dtype dtype = Dtype::e4m3;
  bool expand = false;
};

// Values of x after they are stored and read again, rounded to nearest. f32 gives x.
std::vector<float> store_and_load(const MomentCoding& coding, int64_t group,
                                  std::span<const float> x);

}  // namespace octet
