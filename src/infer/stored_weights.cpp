#include "infer/stored_weights.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/codec.h"
#include "infer/frozen_weight.h"

namespace octet {
namespace {

// Of one thread: memory of the host that the device copies from at its best speed.
class Staging {
 public:
  std::span<std::byte> room(Device& device, int64_t n_bytes) {
    if (!memory_ || memory_->bytes() < n_bytes) memory_ = device.allocate_host(n_bytes);
    return {memory_->data(), static_cast<size_t>(n_bytes)};
  }

 private:
  std::unique_ptr<DeviceMemory> memory_;
};

// Elements of a slot.
struct SlotPiece {
  const Layout::Slot& slot;
  int64_t first = 0, n = 0;
};

// As fill(room) encodes them.
template <typename Fill>
void write_piece(Arenas& arenas, Staging& staging, const SlotPiece& piece, const Fill& fill) {
  const auto& [slot, first, n] = piece;
  const int64_t width = bytes_of(slot.type.dtype, 1);
  CHECK(first >= 0 && n <= slot.type.n_elems() - first);
  if (n == 0) return;
  const std::span<std::byte> room = staging.room(arenas.device(), n * width);
  fill(room);
  arenas.device().copy_in(arenas.arena(slot.arena) + slot.offset + first * width, room.data(),
                          n * width);
}

// As the slot holds them: one, or a row of scales for each row of the weight.
std::vector<float> scale_values(const Shape& shape, const std::vector<float>& scales) {
  if (shape.empty()) return scales;
  std::vector<float> rows;
  rows.reserve(static_cast<size_t>(n_elems(shape)));
  for (int64_t row = 0; row < shape[0]; ++row) {
    const auto first = scales.begin() + row / kFrozenBlock * shape[1];
    rows.insert(rows.end(), first, first + shape[1]);
  }
  return rows;
}

// By weight that is kept in eight bits.
std::map<std::string, FrozenWeight> frozen_weights(const Layout& layout, const WeightReader& base,
                                                   const ModelSpec& spec, FrozenFormat format,
                                                   int n_threads) {
  std::vector<ParameterSpec> matrices = model_parameters(spec);
  std::erase_if(matrices, [&](const ParameterSpec& one) {
    return !is_quantized(layout.slots.at(one.name).type.dtype);
  });
  std::map<std::string, FrozenWeight> frozen;
  std::mutex mutex;
  ThreadPool pool(n_threads);
  pool.run(std::ssize(matrices), [&](int64_t i, int) {
    const ParameterSpec& one = matrices[static_cast<size_t>(i)];
    FrozenWeight weight(base, one.name, one.shape, format);
    const std::scoped_lock lock(mutex);
    frozen.emplace(one.name, std::move(weight));
  });
  return frozen;
}

}  // namespace

std::vector<std::byte> encode_weights(std::span<const float> values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(bytes_of(dtype, 1)));
  encode_weights(values, dtype, bytes);
  return bytes;
}

void encode_weights(std::span<const float> values, Dtype dtype, std::span<std::byte> out) {
  CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::fp16);
  CHECK(out.size() == values.size() * static_cast<size_t>(bytes_of(dtype, 1)));
  if (dtype == Dtype::f32) {
    if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  const auto each = [&](auto code_of) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto code = static_cast<uint16_t>(code_of(values[i]));
      std::memcpy(out.data() + 2 * i, &code, 2);
    }
  };
  if (dtype == Dtype::bf16) return each(bf16_from_f32);
  each([](float value) { return encode<Dtype::fp16>(value, Rounding::rne, {.saturate = false}); });
}

void load_weights(Arenas& arenas, const Layout& layout, const WeightReader& weights,
                  const ModelSpec& spec, FrozenFormat format) {
  const int n_threads = arenas.device().info().n_threads;
  const auto frozen = frozen_weights(layout, weights, spec, format, n_threads);
  std::vector<Staging> staging(static_cast<size_t>(n_threads));
  read_in_pieces(weights, model_parameters(spec), n_threads, [&](const WeightPiece& piece) {
    const std::string& name = piece.parameter.name;
    const Layout::Slot& slot = layout.slots.at(name);
    CHECK(slot.type.n_elems() == n_elems(piece.parameter.shape));
    const auto weight = frozen.find(name);
    write_piece(arenas, staging.at(static_cast<size_t>(piece.thread)),
                {slot, piece.first, std::ssize(piece.values)}, [&](std::span<std::byte> room) {
                  if (weight == frozen.end()) {
                    weights.check_finite(name, piece.first, piece.values, slot.type.dtype);
                    return encode_weights(piece.values, slot.type.dtype, room);
                  }
                  weight->second.encode(piece.first, piece.values,
                                        {reinterpret_cast<uint8_t*>(room.data()), room.size()});
                });
  });
  for (const auto& [name, weight] : frozen) {
    const Layout::Slot& slot = layout.slots.at(frozen_scale_name(name));
    const std::vector<float> values = scale_values(slot.type.shape, weight.scales());
    write_piece(arenas, staging.front(), {slot, 0, std::ssize(values)},
                [&](std::span<std::byte> room) { encode_weights(values, slot.type.dtype, room); });
  }
}

}  // namespace octet
