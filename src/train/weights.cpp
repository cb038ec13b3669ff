#include "train/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/codec.h"
#include "infer/stored_weights.h"
#include "ir/fixed_scale.h"
#include "ir/sharding.h"
#include "math/adamw.h"
#include "math/power_of_two.h"

namespace octet {
namespace {

// Copies to slots, elements `first` of the parameter on, and of them what this rank has a shard of;
// through memory that the device copies from at its best speed where there is a buffer. One
// thread's.
struct SlotWriter {
  Arenas& arenas;
  int64_t rank = 0;
  std::unique_ptr<DeviceMemory>* buffer = nullptr;
  float master_scale = kFirstMasterScale;  // of FP16 masters

  void write(const Layout::Slot& slot, int64_t first, std::span<const std::byte> bytes) const {
    if (!slot.whole) return write_run(slot, first, bytes);
    const int64_t width = bytes_of(slot.type.dtype, 1), n = std::ssize(bytes) / width;
    const ElementRange own = shard_range(n_elems(*slot.whole), slot.type.n_elems(), rank);
    const int64_t begin = std::max(first, own.first);
    const int64_t end = std::min(first + n, own.first + own.count);
    if (begin >= end) return;
    write_run(slot, begin - own.first,
              bytes.subspan(static_cast<size_t>((begin - first) * width),
                            static_cast<size_t>((end - begin) * width)));
  }

  void write_run(const Layout::Slot& slot, int64_t first, std::span<const std::byte> bytes) const {
    const int64_t at = bytes_of(slot.type.dtype, first);
    const auto n_bytes = static_cast<int64_t>(bytes.size());
    CHECK(at >= 0 && n_bytes <= slot.type.n_bytes() - at);
    if (n_bytes == 0) return;
    const std::byte* from = bytes.data();
    if (buffer != nullptr) {
      if (!*buffer || (*buffer)->bytes() < n_bytes) {
        *buffer = arenas.device().allocate_host(n_bytes);
      }
      std::memcpy((*buffer)->data(), from, bytes.size());
      from = (*buffer)->data();
    }
    arenas.device().copy_in(arenas.arena(slot.arena) + slot.offset + at, from, n_bytes);
  }
};

// The f32 or FP16 master of a parameter, or its remainder; nullptr where the weight is all there
// is.
const Layout::Slot* find_master(const Layout& layout, const std::string& parameter) {
  const Layout::Slot* master = layout.find(StateUse::master, parameter);
  return master != nullptr ? master : layout.find(StateUse::master_remainder, parameter);
}

// Where the scale of an FP16 master is kept; nullptr where it has none.
const Layout::Slot* find_scale(const Layout& layout, const std::string& parameter) {
  return layout.find(StateUse::fixed_scale, parameter + ".w");
}

float amax_of(std::span<const float> values) {
  float amax = 0;
  for (const float x : values) amax = std::isfinite(x) ? std::max(amax, std::abs(x)) : amax;
  return amax;
}

// Of FP16 masters that kFirstMasterScale is too small for: the scale that an update makes
// (optim/optimizer.h) is kept from the start. Of others none is.
float write_first_scale(Arenas& arenas, const Layout::Slot& kept, float amax) {
  if (amax < kFirstMasterScale * max_finite(Dtype::fp16)) return kFirstMasterScale;
  const float scale = nearest_power_of_two(amax * 0x1p-14f);
  arenas.device().copy_in(arenas.arena(kept.arena) + kept.offset, &scale, sizeof scale);
  return scale;
}

void write_values(const SlotWriter& to, const Layout& layout, const std::string& parameter,
                  std::span<const float> values, int64_t first) {
  const Layout::Slot& weight = layout.slots.at(parameter);
  const Layout::Slot* master = find_master(layout, parameter);
  if (master == nullptr || master->key.use == StateUse::master) {
    to.write(weight, first, encode_weights(values, weight.type.dtype));
    if (master != nullptr && master->type.dtype == Dtype::fp16) {
      std::vector<float> scaled(values.begin(), values.end());
      for (float& value : scaled) value /= to.master_scale;
      to.write(*master, first, encode_weights(scaled, Dtype::fp16));
    } else if (master != nullptr) {
      to.write(*master, first, std::as_bytes(values));
    }
    return;
  }
  CHECK(weight.type.dtype == Dtype::bf16 && master->type.dtype == Dtype::i16);
  std::vector<uint16_t> hi(values.size());
  std::vector<int16_t> remainder(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const MasterBits split = split_master(values[i]);
    hi[i] = split.hi;
    remainder[i] = split.lo;
  }
  to.write(weight, first, std::as_bytes(std::span(hi)));
  to.write(*master, first, std::as_bytes(std::span(remainder)));
}

// Zeroes all states, but for those of these parameters that will be written from end to end: memory
// that nobody has touched yet costs more to touch than to fill.
void zero_states(Arenas& arenas, const Layout& layout, const std::vector<ParameterSpec>& written) {
  std::set<const Layout::Slot*> kept;
  for (const ParameterSpec& parameter : written) {
    for (const Layout::Slot* slot :
         {&layout.slots.at(parameter.name), find_master(layout, parameter.name)}) {
      if (slot != nullptr && !slot->whole) kept.insert(slot);
    }
  }
  for (const auto& [name, slot] : layout.slots) {
    const bool is_state = slot.arena == Arena::persistent && slot.type.n_bytes() > 0;
    if (!is_state || kept.contains(&slot)) continue;
    arenas.device().fill_zero(arenas.arena(slot.arena) + slot.offset, slot.type.n_bytes());
  }
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

void write_all(Arenas& arenas, const Layout& layout, const std::vector<ParameterSpec>& parameters,
               const ParameterValues& values) {
  ThreadPool pool(arenas.device().info().n_threads);
  pool.run(static_cast<int64_t>(parameters.size()), [&](int64_t i, int) {
    const ParameterSpec& parameter = parameters[static_cast<size_t>(i)];
    write_master(arenas, layout, parameter.name, values(parameter));
  });
}

// What a slot holds of a parameter of n elements.
ElementRange run_of(const Layout& layout, const Layout::Slot& slot, int64_t n) {
  return slot.whole ? shard_range(n, slot.type.n_elems(), layout.rank) : ElementRange{0, n};
}

RandomStream stream_of(const ParameterSpec& parameter, uint32_t seed) {
  return {.name = name_hash(parameter.name), .seed = seed};
}

WeightInit init_of(Arenas& arenas, const Layout& layout, const ParameterSpec& parameter,
                   uint32_t seed) {
  const Layout::Slot& weight = layout.slots.at(parameter.name);
  WeightInit init{.random = stream_of(parameter, seed),
                  .std = parameter.init == Init::normal ? parameter.std : 0,
                  .constant = parameter.init == Init::ones ? 1.0 : 0.0,
                  .weight_run = run_of(layout, weight, n_elems(parameter.shape)),
                  .weight = weight.type.dtype,
                  .weight_at = arenas.arena(weight.arena) + weight.offset};
  if (const Layout::Slot* master = find_master(layout, parameter.name)) {
    init.master_run = run_of(layout, *master, n_elems(parameter.shape));
    init.master = master->type.dtype;
    init.master_at = arenas.arena(master->arena) + master->offset;
  }
  return init;
}

}  // namespace

std::vector<float> initial_values(const ParameterSpec& parameter, uint32_t seed) {
  const auto n = static_cast<size_t>(n_elems(parameter.shape));
  if (parameter.init == Init::ones) return std::vector<float>(n, 1.0f);
  std::vector<float> values(n, 0.0f);
  if (parameter.init == Init::zeros) return values;
  stream_of(parameter, seed).normals(values);
  for (float& value : values)
    value = static_cast<float>(parameter.std * static_cast<double>(value));
  return values;
}

void write_master(Arenas& arenas, const Layout& layout, const std::string& parameter,
                  std::span<const float> values, int64_t first) {
  const Layout::Slot* kept = find_scale(layout, parameter);
  CHECK(kept == nullptr || first == 0);  // the scale is one of all elements
  SlotWriter to{.arenas = arenas, .rank = layout.rank};
  if (kept != nullptr) to.master_scale = write_first_scale(arenas, *kept, amax_of(values));
  write_values(to, layout, parameter, values, first);
}

void write_weights(Arenas& arenas, const Layout& layout,
                   const std::vector<ParameterSpec>& parameters, const ParameterValues& values) {
  zero_states(arenas, layout, parameters);
  write_all(arenas, layout, parameters, values);
}

void load_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, const WeightReader& weights) {
  zero_states(arenas, layout, parameters);
  const int n_threads = arenas.device().info().n_threads;
  const auto scales = write_first_scales(arenas, layout, parameters, weights);
  std::vector<std::unique_ptr<DeviceMemory>> buffers(static_cast<size_t>(n_threads));
  read_in_pieces(weights, parameters, n_threads, [&](const WeightPiece& piece) {
    const std::string& name = piece.parameter.name;
    const auto scale = scales.find(name);
    const SlotWriter to{.arenas = arenas,
                        .rank = layout.rank,
                        .buffer = &buffers[static_cast<size_t>(piece.thread)],
                        .master_scale = scale == scales.end() ? kFirstMasterScale : scale->second};
    weights.check_finite(name, piece.first, piece.values, layout.slots.at(name).type.dtype);
    write_values(to, layout, name, piece.values, piece.first);
  });
}

void init_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, uint32_t seed,
                  Catalogue& catalogue) {
  zero_states(arenas, layout, parameters);
  std::vector<ParameterSpec> left;
  for (const ParameterSpec& parameter : parameters) {
    const WeightInit init = init_of(arenas, layout, parameter, seed);
    const bool is_scaled = init.master_at != nullptr && init.master == Dtype::fp16;
    if (is_scaled || !catalogue.init_weight(init)) left.push_back(parameter);
  }
  write_all(arenas, layout, left,
            [seed](const ParameterSpec& one) { return initial_values(one, seed); });
  arenas.device().synchronize();
}

}  // namespace octet
