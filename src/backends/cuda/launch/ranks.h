// The memory of the GPUs of one host, as the kernels between ranks see it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/params/ranks.h"
#include "math/exact_sum.h"

namespace octet::cuda {

// Where ranks wait for each other. Two meetings that follow each other are of different kinds, so
// that nobody comes to the next of a kind before all have left the last.
enum Meeting : uint8_t {
  before_run,  // operands are there, and what will be written is free
  inside_run,  // what a collective made for the others by itself is there
  behind_run,  // all have read
};
inline constexpr int kMeetings = 3;

// What each rank keeps for the others, at the start of a region of its own.
struct RankBoard {
  uint32_t arrived[kMeetings][kMostRanks];  // by rank: 1 when it has come
  uint32_t one, reserved[7];                // 1, to be copied
  int64_t sum[kExactLimbs + 1];             // of squares
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
