// Parameters of the kernels between the GPUs of all ranks. Equations: ir/ops/ranks.cpp.
//
// Every rank runs the same program in the same layout. What moves between them is a transport's
// (kernels/ranks/transport.h). Within a host (peers): the address of a peer's operand is that of
// one's own, moved to the peer's arena (launch/ranks.h). Before a run of collectives all ranks of
// the host wait until all have come (their operands are there), then each reads data from its
// peers, then all wait again (so that operands may be overwritten). Data and arrivals are moved by
// copy engines and waiting is a stream memory operation, so that nothing of it takes a
// multiprocessor from what computes. Between hosts (NCCL): each sends what the others want of it,
// and nobody reaches another's arena. Either moves everything, NCCL any number of ranks, or both
// do, in two levels. All of it can be captured in a CUDA graph. Results of peers and of NCCL have
// the same bits; those of both have the bits of sums within hosts first.
//
// take_shard: x -> y; all_gather: x [shard] -> y [n]; reduce_ranks: x, into?, scale? -> y: `count`
// elements from `first` on of into + the sum of all ranks' x (E4M3: times scale), in f32 and in
// their order (of hosts' sums, each in the order of its ranks), scratch for the other ranks' shards
// and the hosts' sums where x is scattered; of such a shard also the sums of its squares,
// square_parts(count) rows (ir/sharding.h); max_of_ranks: x -> y
// (bool, or f32 that is not negative, as amax is; NaN is larger than any number); sharded_norm: as
// global_norm, of square sums that are added without rounding (math/exact_sum.h).
#pragma once

#include <cstdint>

#include "formats/dtype.h"

namespace octet::cuda {

inline constexpr int kMaxRanks = 8;        // of a host whose memory each reaches
inline constexpr int64_t kSumBytes = 256;  // of an exact sum

struct RankParams {
  int64_t ranks = 1;
  int64_t n = 0;             // elements of the whole
  int64_t shard = 0;         // elements of one rank's run
  int64_t first = 0;         // of the whole: what this rank's result begins with; -1: its own run
  int64_t count = 0;         // elements of the result
  int64_t ranks_a_host = 0;  // of sums (CollectiveAttrs)
  Dtype x = Dtype::f32, y = Dtype::f32;
  bool into = false;
  bool in_place = false;  // all_gather: x lies where its elements lie in y
  bool squares = false;   // reduce_ranks
  uint8_t reserved[3] = {};
};

// The gradients follow in the tail, two entries each: elements and dtype; sums of squares are words
// of u32.
struct ShardedNormParams {
  int64_t ranks = 1;
  int64_t n_gradients = 0;
};

}  // namespace octet::cuda
