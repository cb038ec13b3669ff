// Several launches of one kernel as one: its blocks are divided among parts, each with arguments of
// its own. What a decoded token needs are short kernels in a row; of those that do not depend on
// each other (LaunchArgs::joins_next) one launch waits less and fills the device better.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

inline constexpr int kMostParts = 4;

template <typename Part>
struct Parts {
  Part of[kMostParts];
  unsigned end[kMostParts];  // blocks of the parts up to this one
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
  for (int i = 1; i < kMostParts; ++i) {
    if (i < parts.n && blockIdx.x >= parts.end[i - 1]) part = i, first = parts.end[i - 1];
  }
  return {part, blockIdx.x - first, parts.end[part] - first};
}

// The kernels of type K among `all`, all of which go with the first, or none where one does not.
template <typename K>
std::vector<const K*> of_one_kind(std::span<const Joined> all) {
  std::vector<const K*> kernels;
  for (const Joined& one : all) {
    const auto* kernel = dynamic_cast<const K*>(one.kernel);
    if (kernel == nullptr || !kernel->goes_with(*static_cast<const K*>(all[0].kernel))) return {};
    kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace octet::cuda
