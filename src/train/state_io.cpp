#include "train/state_io.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "ir/sharding.h"
#include "passes/loss_scale.h"
#include "runtime/copy_ring.h"

namespace octet {
namespace {

// Frozen parameters and statistics stand among the parameters.
bool belongs(const Layout& layout, const Layout::Slot& slot, InputKind kind) {
  const bool is_beside = slot.kind == InputKind::constant || slot.kind == InputKind::statistic;
  const InputKind stored = is_beside ? InputKind::parameter : slot.kind;
  return stored == kind && layout.is_in_checkpoints(slot);
}

TensorUse use_of(const std::string& name, const Layout::Slot& slot) {
  if (slot.kind != InputKind::state) return {"parameter", name};
  return {std::string(state_def(slot.key.use).name), slot.key.owner};
}

void check_slot(const std::string& name, const Layout::Slot& slot,
                const SafetensorsReader& reader) {
  const StoredTensor& tensor = reader.at(name);
  TensorDecl expected = tensor_decl(name, slot.type.dtype, slot.whole_type().shape);
  // A run that an older version began has {scale, ...}, of which the first is read.
  const bool is_older = slot.key.use == StateUse::rescale_factor && tensor.shape == Shape{3};
  if (is_older) expected.shape = tensor.shape;
  if (tensor.stored != expected.stored || tensor.dtype != expected.dtype ||
      tensor.shape != expected.shape) {
    throw Error(ErrorCode::bad_data, "[resume] {}: '{}' must be {} {}, got {} {}", reader.path(),
                name, safe_dtype_name(expected.stored), to_string(expected.shape),
                safe_dtype_name(tensor.stored), to_string(tensor.shape));
  }
}

void check_use(const std::string& name, const Layout::Slot& slot, const TensorUses& recorded,
               const std::string& where) {
  const auto it = recorded.find(name);
  const TensorUse now = use_of(name, slot);
  if (it != recorded.end() && it->second == now) return;
  throw Error(ErrorCode::bad_data, "[resume] {}: '{}' must be recorded as {} of {}, got {}", where,
              name, now.use, now.owner,
              it == recorded.end() ? "nothing" : it->second.use + " of " + it->second.owner);
}

// A counter that older checkpoints lack.
bool is_new_counter(const Layout::Slot& slot) {
  return slot.key == StateKey{StateUse::loss_scale, std::string(kLossScaleRises)};
}

void check_known(const Layout& layout, InputKind kind, const SafetensorsReader& reader) {
  for (const StoredTensor& tensor : reader.tensors()) {
    const auto slot = layout.slots.find(tensor.name);
    if (slot != layout.slots.end() && belongs(layout, slot->second, kind)) continue;
    throw Error(ErrorCode::bad_data,
                "[resume] {}: expected tensors of this model and optimizer alone, got '{}'",
                reader.path(), tensor.name);
  }
}

// Buffers no larger than the largest slot.
int64_t piece_bytes(const Layout& layout, InputKind kind) {
  constexpr int64_t kMax = int64_t{16} << 20;
  int64_t largest = 1;
  for (const auto& [name, slot] : layout.slots) {
    if (belongs(layout, slot, kind)) largest = std::max(largest, slot.type.n_bytes());
  }
  return std::min(largest, kMax);
}

}  // namespace

int64_t stored_bytes(const Layout& layout) {
  int64_t total = 0;
  for (const auto& [name, slot] : layout.slots) {
    if (layout.is_in_checkpoints(slot)) total += slot.whole_type().n_bytes();
  }
  return total;
}

std::vector<StoredSlot> stored_slots(Arenas& arenas, const Layout& layout, InputKind kind) {
  std::vector<StoredSlot> slots;
  for (const auto& [name, slot] : layout.slots) {
    if (!belongs(layout, slot, kind)) continue;
    slots.push_back({.decl = tensor_decl(name, slot.type.dtype, slot.whole_type().shape),
                     .slot = &slot,
                     .data = arenas.arena(slot.arena) + slot.offset});
  }
  return slots;
}

OwnPart own_part(const StoredSlot& stored, const RankPart& rank) {
  const Layout::Slot& slot = *stored.slot;
  const int64_t width = bytes_of(slot.type.dtype, 1), n = n_elems(slot.whole_type().shape);
  const int64_t shard = slot.whole ? slot.type.n_elems() : shard_elems(n, rank.ranks);
  const ElementRange own = shard_range(n, shard, rank.rank);
  return {
      .part = {static_cast<uint64_t>(own.first * width), static_cast<uint64_t>(own.count * width)},
      .data = stored.data + (slot.whole ? 0 : own.first * width)};
}

std::vector<TensorSource> slot_sources(Arenas& arenas, const Layout& layout, InputKind kind,
                                       const RankPart& rank) {
  std::vector<TensorSource> sources;
  const auto staging = std::make_shared<Staging>(arenas.device(), piece_bytes(layout, kind));
  for (StoredSlot& slot : stored_slots(arenas, layout, kind)) {
    const OwnPart own = own_part(slot, rank);
    const auto emit = [staging, own](const ByteSink& sink) {
      staging->copy_out(own.data, static_cast<int64_t>(own.part.n_bytes), sink);
    };
    sources.push_back({std::move(slot.decl), emit, own.part});
  }
  return sources;
}

TensorUses slot_uses(const Layout& layout) {
  TensorUses uses;
  for (const auto& [name, slot] : layout.slots) {
    if (layout.is_in_checkpoints(slot)) uses[name] = use_of(name, slot);
  }
  return uses;
}

void restore_slots(Arenas& arenas, const Layout& layout, InputKind kind,
                   const SafetensorsReader& reader, const TensorUses& recorded) {
  check_known(layout, kind, reader);
  Staging staging(arenas.device(), piece_bytes(layout, kind));
  for (const auto& [name, slot] : layout.slots) {
    if (!belongs(layout, slot, kind)) continue;
    if (is_new_counter(slot) && reader.find(name) == nullptr) {
      arenas.device().fill_zero(arenas.arena(slot.arena) + slot.offset, slot.type.n_bytes());
      continue;
    }
    check_slot(name, slot, reader);
    if (!recorded.empty()) check_use(name, slot, recorded, reader.path());
    const StoredTensor& tensor = reader.at(name);
    const int64_t width = bytes_of(slot.type.dtype, 1);
    const ElementRange own = layout.range_of(slot);
    staging.copy_in(arenas.arena(slot.arena) + slot.offset, own.count * width,
                    [&](int64_t first, std::span<std::byte> piece) {
                      const int64_t at = own.first * width + first;
                      reader.read(tensor, piece, static_cast<uint64_t>(at));
                    });
  }
}

}  // namespace octet
