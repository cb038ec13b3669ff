// How fast ranks reach each other, by what a training step does with it.
#pragma once

#include <string>

#include "bench/bench_row.h"
#include "comm/group.h"

namespace octet {

struct LinkSizes {
  int64_t least = int64_t{64} << 10, most = int64_t{64} << 20;  // bytes of the whole tensor, by 4
  int rounds = 5;
};

// Every rank of `group` calls it and has the same rows: of tensors of f32, from rank 0's memory on,
//   "links all_gather"      every rank has a shard, and gets all
//   "links reduce_scatter"  shards are pushed to their owners, which sum them in the order of ranks
//   "links all_reduce"      both: every rank gets the sum of all
// in GB/s that each rank receives, by the slowest rank's median. `over` is what moves the bytes.
BenchRows bench_links(Group& group, const std::string& over, const LinkSizes& sizes);

}  // namespace octet
