// Sharded data parallelism: D ranks, each with a batch of its own. Sources: Rajbhandari et al. 2020
// (ZeRO), Zhao et al. 2023 (FSDP).
#pragma once

#include <cstdint>

#include "base/named_enum.h"

namespace octet {

// Tensors of which a rank keeps its shard (ir/sharding.h) alone; each stage adds to the one before.
enum class ShardStage : uint8_t {
  none,        // nothing: every rank holds all
  optimizer,   // moments and masters
  gradients,   // and gradients, each reduced as soon as its backward is done
  parameters,  // and weights, gathered for the forward and again for the backward
};
constexpr auto value_names(ShardStage) {
  return name_list("none", "optimizer", "gradients", "parameters");
}

// Data that travel where weights are gathered. codes: their quantized data, with one scale, where
// nothing but quantizers reads them; half the bytes.
enum class GatherFormat : uint8_t { bf16, codes };
constexpr auto value_names(GatherFormat) {
  return name_list("bf16", "codes");
}

// Data that travel where gradients are reduced. e4m3: of matrices, eight bits with one scale a
// tensor, which all ranks make from the largest amax (Peng et al. 2023, FP8-LM); vectors as bf16.
enum class ReduceFormat : uint8_t { f32, bf16, e4m3 };
constexpr auto value_names(ReduceFormat) {
  return name_list("f32", "bf16", "e4m3");
}

struct ParallelOptions {
  int64_t ranks = 1, rank = 0;
  int64_t ranks_a_host = 0;  // that sums begin with (CollectiveAttrs); 0: none
  ShardStage shard = ShardStage::gradients;
  GatherFormat gather = GatherFormat::codes;
  ReduceFormat reduce = ReduceFormat::bf16;
  // Sums that do not depend on the number of ranks: gradients travel as f32, and the global norm is
  // the same of one rank. With recipe fp32, D ranks have the bits of one that accumulates D times
  // as many micro-batches.
  bool strict = false;

  bool is_active() const { return ranks > 1 || strict; }
};

}  // namespace octet
