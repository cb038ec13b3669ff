// The other ranks, as the kernels between ranks see them.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/params/ranks.h"
#include "math/exact_sum.h"

namespace octet::cuda {

// Barriers of ranks. Two that follow each other are of different kinds, so that nobody comes to the
// next of a kind before all have left the last.
enum RankBarrier : uint8_t {
  before_run,  // operands are there, and what will be written is free
  inside_run,  // what a collective made for the others by itself is there
  inside_again,
  behind_run,  // all have read
};
inline constexpr int kRankBarriers = 4;

// State that each rank keeps for the others, at the start of a region of its own.
struct RankBoard {
  uint32_t arrived[kRankBarriers][kMaxRanks];  // by rank of the host: 1 when it has come
  uint32_t one, reserved[7];                   // 1, to be copied
  // Sums of squares. Norms of one run take them by turns: of the one before others may still read.
  int64_t sums[2][kExactLimbs + 1];
  int64_t sum_of_host[kExactLimbs + 1];  // of all ranks of the host; for this rank alone
};

struct Transport;  // kernels/ranks/transport.h

// How far this rank is, for the others to know who is behind.
struct RankProgress {
  uint32_t* run = nullptr;  // of the host: the run of collectives of its plan that has begun
  std::atomic<int64_t> n_plans = 0;
  std::atomic<bool> is_idle = true;

  void begin_plan() {
    if (run == nullptr) return;
    __atomic_store_n(run, 0, __ATOMIC_RELAXED);
    is_idle = false;
    ++n_plans;
  }
  // Larger is further.
  int64_t value() const {
    const int64_t plans = 2 * n_plans + (is_idle ? 1 : 0);
    return plans << 32 | (is_idle ? 0 : __atomic_load_n(run, __ATOMIC_RELAXED));
  }
};

struct RankLinks {
  int rank = 0, n_ranks = 1;
  // Neighbours of a host that reach each other's memory; the hosts follow each other, with as many
  // each. 1: NCCL moves everything.
  int n_local = 1;
  int local() const { return rank % n_local; }
  int host() const { return rank / n_local; }
  int n_hosts() const { return n_ranks / n_local; }
  std::shared_ptr<Transport> transport = {};
  // Tells the others how far this rank is; false: one of them has failed.
  bool (*look)(void* looker, int64_t progress) = nullptr;
  void* looker = nullptr;
  mutable RankProgress progress = {};
  mutable int n_norms = 0;  // that are prepared
  struct Region {
    std::byte* own = nullptr;
    int64_t bytes = 0;
    std::array<std::byte*, kMaxRanks> of = {};  // by rank of the host; its own too
  };
  std::vector<Region> regions = {};  // the boards', and arenas

  // Peers' data at this address of this rank, of each rank of the host. Throws ModuleError for an
  // address that no region holds.
  template <typename T>
  std::array<T*, kMaxRanks> peers(const void* own) const {
    const auto* at = static_cast<const std::byte*>(own);
    for (const Region& region : regions) {
      if (at < region.own || at >= region.own + region.bytes) continue;
      std::array<T*, kMaxRanks> result = {};
      for (int r = 0; r < n_local; ++r)
        result[r] = reinterpret_cast<T*>(region.of[r] + (at - region.own));
      return result;
    }
    throw ModuleError("[cuda] an operand between ranks lies in no arena that they share");
  }
  RankBoard* board() const { return reinterpret_cast<RankBoard*>(regions.front().own); }
  std::array<RankBoard*, kMaxRanks> boards() const { return peers<RankBoard>(board()); }
};

}  // namespace octet::cuda
