#include "train/state_io.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
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
  const TensorDecl expected = tensor_decl(name, slot.type.dtype, slot.type.shape);
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

}  // namespace

std::vector<TensorSource> slot_sources(Arenas& arenas, const Layout& layout, InputKind kind) {
  std::vector<TensorSource> sources;
  const auto staging = std::make_shared<Staging>(arenas.device(), piece_bytes(layout, kind));
  for (const auto& [name, slot] : layout.slots) {
    if (!belongs(slot, kind)) continue;
    const std::byte* data = arenas.lane(slot.lane) + slot.offset;
    const int64_t n_bytes = slot.type.n_bytes();
    const auto emit = [staging, data, n_bytes](const ByteSink& sink) {
      staging->copy_out(data, n_bytes, sink);
    };
    sources.push_back({tensor_decl(name, slot.type.dtype, slot.type.shape), emit});
  }
  return sources;
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
    staging.copy_in(arenas.lane(slot.lane) + slot.offset, slot.type.n_bytes(),
                    [&](int64_t first, std::span<std::byte> piece) {
                      reader.read(tensor, piece, static_cast<uint64_t>(first));
                    });
  }
}

}  // namespace octet
