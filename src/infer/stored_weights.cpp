#include "infer/stored_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/codec.h"
#include "infer/matrix_quantizer.h"
#include "ir/fixed_scale.h"
#include "math/adamw.h"
#include "math/power_of_two.h"

namespace octet {
namespace {

// Copies elements of parameters to slots, through memory of the host that the device copies from at
// its best speed: a buffer for each thread that calls. With no threads one calls, and no memory is
// set up for the device: the writer lives for one parameter.
class SlotWriter {
 public:
  SlotWriter(Arenas& arenas, const Layout& layout, int n_threads)
      : arenas_(arenas), layout_(layout), buffers_(static_cast<size_t>(n_threads)) {}

  // Elements of the parameter, `first` on, of which a slot may have this rank's shard alone.
  struct Place {
    const Layout::Slot& slot;
    int64_t first = 0;
    int thread = 0;
  };
  // Writes elements as fill(begin, out) encodes those from first + begin on.
  template <typename Fill>
  void write(const Place& place, int64_t n, const Fill& fill) {
    const auto& [slot, first, thread] = place;
    const ElementRange own = layout_.range_of(slot);
    CHECK(slot.whole || (first >= 0 && n <= own.count - first));
    const int64_t width = bytes_of(slot.type.dtype, 1);
    const int64_t last = std::min(first + n, own.first + own.count);
    for (int64_t at = std::max(first, own.first); at < last; at += kMaxBuffer / width) {
      const int64_t n_bytes = std::min(kMaxBuffer, (last - at) * width);
      std::byte* buffer = buffer_of(thread, n_bytes);
      fill(at - first, std::span(buffer, static_cast<size_t>(n_bytes)));
      arenas_.device().copy_in(arenas_.arena(slot.arena) + slot.offset + (at - own.first) * width,
                               buffer, n_bytes);
    }
  }

  // Rounded to nearest even in the type of the slot.
  void write(const Place& place, std::span<const float> values) {
    const Dtype dtype = place.slot.type.dtype;
    const int64_t width = bytes_of(dtype, 1);
    write(place, std::ssize(values), [&](int64_t begin, std::span<std::byte> out) {
      encode_weights(values.subspan(static_cast<size_t>(begin), out.size() / width), dtype, out);
    });
  }

 private:
  static constexpr int64_t kMaxBuffer = 2 << 20;  // bytes

  std::byte* buffer_of(int thread, int64_t n_bytes) {
    if (buffers_.empty()) {
      pageable_.resize(std::max(pageable_.size(), static_cast<size_t>(n_bytes)));
      return pageable_.data();
    }
    std::unique_ptr<DeviceMemory>& buffer = buffers_.at(static_cast<size_t>(thread));
    if (!buffer || buffer->bytes() < n_bytes) buffer = arenas_.device().allocate_host(n_bytes);
    return buffer->data();
  }

  Arenas& arenas_;
  const Layout& layout_;
  std::vector<std::unique_ptr<DeviceMemory>> buffers_;
  std::vector<std::byte> pageable_;
};

// Slot of the scale of an FP16 master; nullptr where it has none.
const Layout::Slot* find_scale(const Layout& layout, const std::string& parameter) {
  return layout.find(StateUse::fixed_scale, parameter + ".w");
}

float amax_of(std::span<const float> values) {
  float amax = 0;
  for (const float x : values) amax = std::isfinite(x) ? std::max(amax, std::abs(x)) : amax;
  return amax;
}

// FP16 masters that kFirstMasterScale is too small for keep the scale that an update makes
// (optim/optimizer.h) from the start. Others keep none.
float write_first_scale(Arenas& arenas, const Layout::Slot& kept, float amax) {
  if (amax < kFirstMasterScale * max_finite(Dtype::fp16)) return kFirstMasterScale;
  const float scale = nearest_power_of_two(amax * 0x1p-14f);
  arenas.device().copy_in(arenas.arena(kept.arena) + kept.offset, &scale, sizeof scale);
  return scale;
}

// Consecutive values of a parameter, written by one thread; FP16 masters are divided by the scale.
struct ParameterPiece {
  const std::string& parameter;
  std::span<const float> values;
  int64_t first = 0;
  int thread = 0;
  float master_scale = kFirstMasterScale;
};

void write_piece(SlotWriter& to, const Layout& layout, const ParameterPiece& piece) {
  const std::span<const float> values = piece.values;
  const Layout::Slot& weight = layout.slots.at(piece.parameter);
  const Layout::Slot* master = find_master(layout, piece.parameter);
  const auto at = [&piece](const Layout::Slot& slot) {
    return SlotWriter::Place{slot, piece.first, piece.thread};
  };
  if (master == nullptr || master->key.use == StateUse::master) {
    to.write(at(weight), values);
    if (master == nullptr) return;
    if (master->type.dtype != Dtype::fp16) return to.write(at(*master), values);
    std::vector<float> scaled(values.begin(), values.end());
    for (float& value : scaled) value /= piece.master_scale;
    return to.write(at(*master), scaled);
  }
  CHECK(weight.type.dtype == Dtype::bf16 && master->type.dtype == Dtype::i16);
  const auto write_half = [&](const Layout::Slot& slot, auto MasterBits::*half) {
    to.write(at(slot), std::ssize(values), [&](int64_t begin, std::span<std::byte> out) {
      for (size_t i = 0; i < out.size() / 2; ++i) {
        const MasterBits split = split_master(values[static_cast<size_t>(begin) + i]);
        std::memcpy(&out[2 * i], &(split.*half), 2);
      }
    });
  };
  write_half(weight, &MasterBits::hi);
  write_half(*master, &MasterBits::lo);
}

// A scale is one of the whole tensor: they are read once more, where there are any.
std::map<std::string, float> write_first_scales(Arenas& arenas, const Layout& layout,
                                                const std::vector<ParameterSpec>& parameters,
                                                const WeightReader& weights) {
  std::map<std::string, float> scales;
  for (const ParameterSpec& parameter : parameters) {
    const Layout::Slot* kept = find_scale(layout, parameter.name);
    if (kept == nullptr) continue;
    std::mutex mutex;
    float amax = 0;
    const std::span one(&parameter, 1);
    read_in_pieces(weights, one, arenas.device().info().n_threads, [&](const WeightPiece& piece) {
      const float largest = amax_of(piece.values);
      const std::scoped_lock lock(mutex);
      amax = std::max(amax, largest);
    });
    scales[parameter.name] = write_first_scale(arenas, *kept, amax);
  }
  return scales;
}

// Scales as the slot holds them: one, or a row of scales for each row of the weight.
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
                                                   std::vector<ParameterSpec> matrices,
                                                   FrozenFormat format, int n_threads) {
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

const Layout::Slot* find_master(const Layout& layout, const std::string& parameter) {
  const Layout::Slot* master = layout.find(StateUse::master, parameter);
  return master != nullptr ? master : layout.find(StateUse::master_remainder, parameter);
}

void write_master(Arenas& arenas, const Layout& layout, const std::string& parameter,
                  std::span<const float> values, int64_t first) {
  const Layout::Slot* kept = find_scale(layout, parameter);
  CHECK(kept == nullptr || first == 0);  // the scale is one of all elements
  ParameterPiece piece{.parameter = parameter, .values = values, .first = first};
  if (kept != nullptr) piece.master_scale = write_first_scale(arenas, *kept, amax_of(values));
  SlotWriter to(arenas, layout, 0);
  write_piece(to, layout, piece);
}

void load_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, const WeightReader& weights,
                  FrozenFormat format) {
  const int n_threads = arenas.device().info().n_threads;
  const auto frozen = frozen_weights(layout, weights, parameters, format, n_threads);
  const auto scales = write_first_scales(arenas, layout, parameters, weights);
  SlotWriter to(arenas, layout, n_threads);
  read_in_pieces(weights, parameters, n_threads, [&](const WeightPiece& piece) {
    const std::string& name = piece.parameter.name;
    const Layout::Slot& slot = layout.slots.at(name);
    if (const auto weight = frozen.find(name); weight != frozen.end()) {
      return to.write({slot, piece.first, piece.thread}, std::ssize(piece.values),
                      [&](int64_t begin, std::span<std::byte> out) {
                        weight->second.encode(
                            piece.first + begin,
                            piece.values.subspan(static_cast<size_t>(begin), out.size()),
                            {reinterpret_cast<uint8_t*>(out.data()), out.size()});
                      });
    }
    if (slot.type.dtype != Dtype::f32)  // as which they have been read
      weights.check_finite(name, piece.first, piece.values, slot.type.dtype);
    const auto scale = scales.find(name);
    write_piece(to, layout,
                {name, piece.values, piece.first, piece.thread,
                 scale == scales.end() ? kFirstMasterScale : scale->second});
  });
  for (const auto& [name, weight] : frozen) {
    const Layout::Slot& slot = layout.slots.at(frozen_scale_name(name));
    to.write({slot}, scale_values(slot.type.shape, weight.scales()));
  }
}

}  // namespace octet
