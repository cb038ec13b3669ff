// The persistent slots of a program as tensors of a checkpoint, by name and dtype, and back.
//
// model.safetensors holds the weights that forward and backward compute with, under their Hugging
// Face names, so that other programs can load them; optim.safetensors holds every state (masters or
// their remainders, moments), so that the two together restore every bit.
#pragma once

#include <vector>

#include "io/manifest.h"
#include "io/safetensors.h"
#include "runtime/executor.h"

namespace octet {

// A tensor of a file, and the slot that holds it.
struct StoredSlot {
  TensorDecl decl;
  const Layout::Slot* slot = nullptr;
  const std::byte* data = nullptr;
};
// By name.
std::vector<StoredSlot> stored_slots(Arenas& arenas, const Layout& layout, InputKind kind);

// Bytes of what a checkpoint holds, all ranks' shards together.
int64_t stored_bytes(const Layout& layout);

// One of the ranks that write a checkpoint together.
struct RankPart {
  int rank = 0, ranks = 1;
};
// The part of a slot that the rank writes: of a shard all that is not padding; of what every rank
// has, the shard that it would have (ir/sharding.h).
struct OwnPart {
  TensorPart part;  // of the whole tensor
  const std::byte* data = nullptr;
};
OwnPart own_part(const StoredSlot& slot, const RankPart& rank);

// Sorted by name; the sources give the rank's parts, and read the arenas when they are written.
std::vector<TensorSource> slot_sources(Arenas& arenas, const Layout& layout, InputKind kind,
                                       const RankPart& rank = {});

// The use to the run of each slot that a checkpoint holds: docs/formats/checkpoint.md.
TensorUses slot_uses(const Layout& layout);

// A rank reads of a tensor its own shard alone.
// A counter that checkpoints of before it lack (loss_scale:rises) begins at 0.
// Throws Error{bad_data} where a slot has no tensor, or one of another dtype or shape; where a
// tensor of the file has no slot, which would be dropped from all later checkpoints; and where
// `recorded`, unless it is empty, tells another use or owner of a tensor.
void restore_slots(Arenas& arenas, const Layout& layout, InputKind kind,
                   const SafetensorsReader& reader, const TensorUses& recorded = {});

}  // namespace octet
