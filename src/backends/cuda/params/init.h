// Initializes a weight where it lies: element i is f32(std * f32(normal i of the
// stream)) (RandomStream, base/philox.h), or `constant` everywhere where std is 0. No operands.
// Results: the weight, rounded to nearest even; then its master: the f32 value itself, or the i16
// remainder that makes it exact (math/master.h; the weight is then rounded half up). Equal to the
// host's but for the last bit of f32, where the two machines' logarithm and cosine differ.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "formats/dtype.h"

namespace octet::cuda {

struct InitParams {
  int64_t weight_first = 0, weight_count = 0;  // the elements that lie at the results: a rank may
  int64_t master_first = 0, master_count = 0;  // have all of a weight and a shard of its master
  RandomStream random;
  double std = 0;
  double constant = 0;
  Dtype weight = Dtype::bf16, master = Dtype::f32;
  bool has_master = false;
};

}  // namespace octet::cuda
