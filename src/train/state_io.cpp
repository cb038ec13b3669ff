#include "train/state_io.h"

#include <algorithm>

#include "base/error.h"

namespace octet {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

// fn(first byte, number of bytes) over a slot.
template <typename Fn>
void for_pieces(int64_t n_bytes, Fn&& fn) {
  for (int64_t first = 0; first < n_bytes; first += kPieceBytes) {
    fn(first, std::min(kPieceBytes, n_bytes - first));
  }
}

bool belongs(const Layout::Slot& slot, InputKind kind) {
  return slot.lane == Lane::persistent && slot.kind == kind;
}

}  // namespace

std::vector<TensorSource> slot_sources(Arenas& arenas, const Layout& layout, InputKind kind) {
  std::vector<TensorSource> sources;
  for (const auto& [name, slot] : layout.slots) {
    if (!belongs(slot, kind)) continue;
    const std::byte* data = arenas.lane(slot.lane) + slot.offset;
    const int64_t n_bytes = slot.type.n_bytes();
    const auto emit = [&arenas, data, n_bytes](const ByteSink& sink) {
      std::vector<std::byte> piece(static_cast<size_t>(std::min(kPieceBytes, n_bytes)));
      for_pieces(n_bytes, [&](int64_t first, int64_t n) {
        arenas.device().copy_out(piece.data(), data + first, n);
        sink(std::span(piece).first(static_cast<size_t>(n)));
      });
    };
    sources.push_back({tensor_decl(name, slot.type.dtype, slot.type.shape), emit});
  }
  return sources;
}

void restore_slots(Arenas& arenas, const Layout& layout, InputKind kind,
                   const SafetensorsReader& reader) {
  for (const auto& [name, slot] : layout.slots) {
    if (!belongs(slot, kind)) continue;
    const StoredTensor& tensor = reader.at(name);
    const TensorDecl expected = tensor_decl(name, slot.type.dtype, slot.type.shape);
    if (tensor.stored != expected.stored || tensor.dtype != expected.dtype ||
        tensor.shape != expected.shape) {
      throw Error(ErrorCode::bad_data, "[resume] {}: '{}' must be {} {}, got {} {}", reader.path(),
                  name, safe_dtype_name(expected.stored), to_string(expected.shape),
                  safe_dtype_name(tensor.stored), to_string(tensor.shape));
    }
    std::byte* data = arenas.lane(slot.lane) + slot.offset;
    for_pieces(slot.type.n_bytes(), [&](int64_t first, int64_t n) {
      std::vector<std::byte> piece(static_cast<size_t>(n));
      reader.read(tensor, piece, static_cast<uint64_t>(first));
      arenas.device().copy_in(data + first, piece.data(), n);
    });
  }
}

}  // namespace octet
