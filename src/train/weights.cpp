#include "train/weights.h"

#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "infer/inference.h"
#include "math/adamw.h"

namespace octet {
namespace {

void write_slot(Arenas& arenas, const Layout::Slot& slot, const void* data, size_t bytes) {
  CHECK(static_cast<int64_t>(bytes) == slot.type.n_bytes());
  if (bytes == 0) return;
  arenas.device().copy_in(arenas.lane(slot.lane) + slot.offset, data, slot.type.n_bytes());
}

}  // namespace

std::vector<float> initial_values(const ParameterSpec& parameter, uint32_t seed) {
  const auto n = static_cast<size_t>(n_elems(parameter.shape));
  if (parameter.init == Init::ones) return std::vector<float>(n, 1.0f);
  std::vector<float> values(n, 0.0f);
  if (parameter.init == Init::zeros) return values;
  const RandomStream random{.name = name_hash(parameter.name), .seed = seed};
  random.normals(values);
  for (float& value : values)
    value = static_cast<float>(parameter.std * static_cast<double>(value));
  return values;
}

void write_master(Arenas& arenas, const Layout& layout, const std::string& parameter,
                  std::span<const float> values) {
  const Layout::Slot& weight = layout.slots.at(parameter);
  const auto master = layout.slots.find("master:" + parameter);
  if (master == layout.slots.end() || master->second.type.dtype == Dtype::f32) {
    const std::vector<std::byte> bytes = encode_weights(values, weight.type.dtype);
    write_slot(arenas, weight, bytes.data(), bytes.size());
    if (master != layout.slots.end()) {
      write_slot(arenas, master->second, values.data(), values.size_bytes());
    }
    return;
  }
  CHECK(weight.type.dtype == Dtype::bf16 && master->second.type.dtype == Dtype::i16);
  std::vector<uint16_t> hi(values.size());
  std::vector<int16_t> remainder(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const MasterBits split = split_master(values[i]);
    hi[i] = split.hi;
    remainder[i] = split.lo;
  }
  write_slot(arenas, weight, hi.data(), hi.size() * sizeof(uint16_t));
  write_slot(arenas, master->second, remainder.data(), remainder.size() * sizeof(int16_t));
}

void write_weights(Arenas& arenas, const Layout& layout,
                   const std::vector<ParameterSpec>& parameters, const ParameterValues& values) {
  Device& device = arenas.device();
  for (const auto& [name, slot] : layout.slots) {
    if (slot.lane != Lane::persistent || slot.type.n_bytes() == 0) continue;
    device.fill_zero(arenas.lane(slot.lane) + slot.offset, slot.type.n_bytes());
  }
  ThreadPool pool(device.info().n_threads);
  pool.run(static_cast<int64_t>(parameters.size()), [&](int64_t i, int) {
    const ParameterSpec& parameter = parameters[static_cast<size_t>(i)];
    write_master(arenas, layout, parameter.name, values(parameter));
  });
}

}  // namespace octet
