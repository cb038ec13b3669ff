// The memory of the GPUs of one host, as the kernels between ranks see it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cuda/module/kernel.h"
#include "backends/cuda/params/ranks.h"
#include "math/exact_sum.h"

namespace octet::cuda {

// What each rank keeps for the others, at the start of a region of its own.
struct RankBoard {
  uint32_t arrived[kMostRanks];  // by rank: how many meetings it has come to
  uint32_t n_meetings;           // of this rank
  uint32_t reserved[7];
  int64_t sum[kExactLimbs + 1];  // of squares
};

struct RankLinks {
  int rank = 0, n_ranks = 1;
  struct Region {
    std::byte* own = nullptr;
    int64_t bytes = 0;
    std::array<std::byte*, kMostRanks> of = {};  // by rank; its own too
  };
  std::vector<Region> regions;  // arenas; the last one is the boards'

  // Of each rank, what lies at this address of this rank. Throws ModuleError for an address that no
  // region holds.
  template <typename T>
  std::array<T*, kMostRanks> peers(const void* own) const {
    const auto* at = static_cast<const std::byte*>(own);
    for (const Region& region : regions) {
      if (at < region.own || at >= region.own + region.bytes) continue;
      std::array<T*, kMostRanks> result = {};
      for (int r = 0; r < n_ranks; ++r)
        result[r] = reinterpret_cast<T*>(region.of[r] + (at - region.own));
      return result;
    }
    throw ModuleError("[cuda] an operand between ranks lies in no arena that they share");
  }
  RankBoard* board() const { return reinterpret_cast<RankBoard*>(regions.back().own); }
  std::array<RankBoard*, kMostRanks> boards() const { return peers<RankBoard>(board()); }
};

}  // namespace octet::cuda
