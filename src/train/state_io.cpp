#include "train/state_io.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "ir/sharding.h"
#include "runtime/staging.h"

namespace octet {
namespace {

bool belongs(const Layout::Slot& slot, InputKind kind) {
  return slot.lane == Lane::persistent && slot.kind == kind;
}

TensorUse use_of(const std::string& name, const Layout::Slot& slot) {
  if (slot.kind == InputKind::parameter) return {"parameter", name};
  return {std::string(state_def(slot.key.use).name), slot.key.owner};
}

void check_slot(const std::string& name, const Layout::Slot& slot,
                const SafetensorsReader& reader) {
  const StoredTensor& tensor = reader.at(name);
  const TensorDecl expected = tensor_decl(name, slot.type.dtype, slot.whole_type().shape);
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

void check_known(const Layout& layout, InputKind kind, const SafetensorsReader& reader) {
  for (const StoredTensor& tensor : reader.tensors()) {
    const auto slot = layout.slots.find(tensor.name);
    if (slot != layout.slots.end() && belongs(slot->second, kind)) continue;
    throw Error(ErrorCode::bad_data,
                "[resume] {}: expected tensors of this model and optimizer alone, got '{}'",
                reader.path(), tensor.name);
  }
}

// Buffers no larger than the largest slot.
int64_t piece_bytes(const Layout& layout, InputKind kind) {
  constexpr int64_t kMost = int64_t{16} << 20;
  int64_t largest = 1;
  for (const auto& [name, slot] : layout.slots) {
    if (belongs(slot, kind)) largest = std::max(largest, slot.type.n_bytes());
  }
  return std::min(largest, kMost);
}

// Each rank's run in turn, sent to all in pieces.
class Collector {
 public:
  Collector(Group& group, std::shared_ptr<Staging> staging, int64_t piece_bytes)
      : group_(group), staging_(std::move(staging)), piece_bytes_(piece_bytes) {}

  void run(const Layout::Slot& slot, const std::byte* own, const ByteSink& sink) {
    const int64_t width = dtype_bytes(slot.type.dtype), n = n_elems(*slot.whole);
    for (int root = 0; root < group_.size(); ++root) {
      const int64_t n_bytes = shard_range(n, slot.type.n_elems(), root).count * width;
      if (root == group_.rank()) {
        staging_->copy_out(own, n_bytes, [&](std::span<const std::byte> piece) {
          // A root's memory is only read.
          group_.broadcast(const_cast<std::byte*>(piece.data()), std::ssize(piece), root);
          sink(piece);
        });
      } else {
        receive(root, n_bytes, sink);
      }
    }
  }

 private:
  void receive(int root, int64_t n_bytes, const ByteSink& sink) {
    std::vector<std::byte> piece;
    for (int64_t first = 0; first < n_bytes; first += piece_bytes_) {
      piece.resize(static_cast<size_t>(std::min(piece_bytes_, n_bytes - first)));
      group_.broadcast(piece.data(), std::ssize(piece), root);
      sink(piece);
    }
  }

  Group& group_;
  std::shared_ptr<Staging> staging_;
  int64_t piece_bytes_;
};

}  // namespace

std::vector<StoredSlot> stored_slots(Arenas& arenas, const Layout& layout, InputKind kind) {
  std::vector<StoredSlot> slots;
  for (const auto& [name, slot] : layout.slots) {
    if (!belongs(slot, kind)) continue;
    slots.push_back({.decl = tensor_decl(name, slot.type.dtype, slot.whole_type().shape),
                     .slot = &slot,
                     .data = arenas.lane(slot.lane) + slot.offset});
  }
  return slots;
}

std::vector<TensorSource> slot_sources(Arenas& arenas, const Layout& layout, InputKind kind,
                                       Group* group) {
  std::vector<TensorSource> sources;
  const int64_t piece = piece_bytes(layout, kind);
  const auto staging = std::make_shared<Staging>(arenas.device(), piece);
  for (StoredSlot& stored : stored_slots(arenas, layout, kind)) {
    const Layout::Slot& slot = *stored.slot;
    const auto emit = [staging, data = stored.data, group, piece, &slot](const ByteSink& sink) {
      if (!slot.whole) return staging->copy_out(data, slot.type.n_bytes(), sink);
      CHECK(group != nullptr);
      Collector(*group, staging, piece).run(slot, data, sink);
    };
    sources.push_back({std::move(stored.decl), emit});
  }
  return sources;
}

void hand_out_slots(Arenas& arenas, const Layout& layout, InputKind kind, Group& group) {
  const std::vector<TensorSource> sources = slot_sources(arenas, layout, kind, &group);
  for (const TensorSource* source : in_file_order(sources)) {
    if (layout.slots.at(source->decl.name).whole) source->emit([](std::span<const std::byte>) {});
  }
}

TensorUses slot_uses(const Layout& layout) {
  TensorUses uses;
  for (const auto& [name, slot] : layout.slots) {
    const bool is_kept = belongs(slot, InputKind::parameter) || belongs(slot, InputKind::state);
    if (is_kept) uses[name] = use_of(name, slot);
  }
  return uses;
}

void restore_slots(Arenas& arenas, const Layout& layout, InputKind kind,
                   const SafetensorsReader& reader, const TensorUses& recorded) {
  check_known(layout, kind, reader);
  Staging staging(arenas.device(), piece_bytes(layout, kind));
  for (const auto& [name, slot] : layout.slots) {
    if (!belongs(slot, kind)) continue;
    check_slot(name, slot, reader);
    if (!recorded.empty()) check_use(name, slot, recorded, reader.path());
    const StoredTensor& tensor = reader.at(name);
    const int64_t width = dtype_bytes(slot.type.dtype);
    const ElementRange own =
        slot.whole ? shard_range(n_elems(*slot.whole), slot.type.n_elems(), layout.rank)
                   : ElementRange{0, slot.type.n_elems()};
    staging.copy_in(arenas.lane(slot.lane) + slot.offset, own.count * width,
                    [&](int64_t first, std::span<std::byte> piece) {
                      const int64_t at = own.first * width + first;
                      reader.read(tensor, piece, static_cast<uint64_t>(at));
                    });
  }
}

}  // namespace octet
