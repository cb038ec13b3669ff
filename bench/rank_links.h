// How fast ranks reach each other, by what a training step does with it.
#pragma once

#include <string>

#include "bench/machine.h"
#include "comm/group.h"
#include "runtime/rank_self_test.h"

namespace octet {

struct LinkSizes {
  int64_t least = int64_t{64} << 10, most = int64_t{64} << 20;  // bytes of the whole tensor, by 4
  int rounds = 5;
};

struct LinkRows {
  BenchRows rows;
  SelfTestResult self_test;  // of all kernels, where devices reach each other
};

// Every rank of `group` calls it, on a back end of its own, and has the same rows: of tensors of
// f32 (on GPUs BF16), by the slowest rank's median,
//   "links all_gather"      every rank has a shard, and gets all
//   "links reduce_scatter"  shards are pushed to their owners, which sum them in the order of ranks
//   "links all_reduce"      every rank gets the sum of all
// in GB/s that each rank receives, which is what it sends; on GPUs also
//   "links all_reduce max"  of f32, by one block
//   "links sharded_norm"    in GB/s of gradients that are read
//   "links barrier"         us until all have come, of an empty one
// Each row's results are verified as the self-test verifies its own, before it is timed and behind:
// a wrong one is an Error{device}. `over` is what moves the bytes.
LinkRows bench_links(const BenchMachine& machine, Group& group, const std::string& over,
                     const LinkSizes& sizes);

}  // namespace octet
