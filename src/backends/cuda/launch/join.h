// Several launches of one kernel as one: its blocks are divided among parts, each with arguments of
// its own. What a decoded token needs are short kernels in a row; of those that do not depend on
// each other (LaunchArgs::joins_next) one launch waits less and fills the device better.
// And steps of a chain (target/chains.h), as the kernel that makes them asks for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

template <typename Part>
struct Parts {
  Part of[kMaxParts];
  unsigned end[kMaxParts];  // blocks of the parts up to this one
  int n = 0;

  void add(const Part& part, unsigned n_blocks) {
    of[n] = part;
    end[n] = (n == 0 ? 0 : end[n - 1]) + n_blocks;
    ++n;
  }
  unsigned n_blocks() const { return n == 0 ? 0 : end[n - 1]; }
};

// The part of a block, and which of the part's blocks it is.
struct PartBlock {
  int part;
  unsigned block, n_blocks;
};
template <typename Part>
__device__ __forceinline__ PartBlock part_of_block(const Parts<Part>& parts) {
  unsigned first = 0;
  int part = 0;
#pragma unroll
  for (int i = 1; i < kMaxParts; ++i) {
    if (i < parts.n && blockIdx.x >= parts.end[i - 1]) part = i, first = parts.end[i - 1];
  }
  return {part, blockIdx.x - first, parts.end[part] - first};
}

// The parts of launches of kernels of type K; nothing where one does not go with the first. The
// module joins at most kMaxParts.
template <typename Part, typename K>
std::optional<Parts<Part>> join_parts(const K& first, std::span<const Joined> all) {
  Parts<Part> parts;
  for (const Joined& one : all) {
    const auto* kernel = dynamic_cast<const K*>(one.kernel);
    if (kernel == nullptr || !kernel->goes_with(first)) return std::nullopt;
    kernel->add_to(parts, one.args);
  }
  return parts;
}

// A rotation that another kernel may make: its addresses and the frequency of each pair.
struct RopeStep {
  const void* x;
  const void* y;
  const int32_t* positions;
  std::span<const double> frequencies;
};
class RopeKernel : public Prepared {
 public:
  virtual RopeStep step_of(const Launch& args) const = 0;
};

// A cache whose new rows another kernel may write. Where it lies elsewhere than the one that it
// comes from, step_of has copied that one.
struct CacheStep {
  const void* x;
  void* cache;
};
class CacheKernel : public Prepared {
 public:
  virtual CacheStep step_of(const Launch& args) const = 0;
};

}  // namespace octet::cuda
