#include "train/adapted_weights.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "infer/frozen_weight.h"
#include "infer/inference.h"
#include "nn/model.h"
#include "train/weights.h"

namespace octet {
namespace {

// `bytes` from element `first` on, through memory that the device copies from at its best speed.
void write_slot(Arenas& arenas, std::unique_ptr<DeviceMemory>& buffer, const Layout::Slot& slot,
                int64_t first, std::span<const std::byte> bytes) {
  const int64_t at = first * dtype_bytes(slot.type.dtype);
  const auto n_bytes = static_cast<int64_t>(bytes.size());
  CHECK(at >= 0 && n_bytes <= slot.type.n_bytes() - at);
  if (n_bytes == 0) return;
  if (!buffer || buffer->bytes() < n_bytes) buffer = arenas.device().allocate_host(n_bytes);
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  arenas.device().copy_in(arenas.lane(slot.lane) + slot.offset + at, buffer->data(), n_bytes);
}

// As the slot holds them: one f32, or a row of BF16 scales for each row of the weight.
std::vector<std::byte> scale_bytes(const Layout::Slot& slot, const std::vector<float>& scales) {
  const Shape& shape = slot.type.shape;
  if (shape.empty()) return encode_weights(scales, slot.type.dtype);
  std::vector<float> rows;
  rows.reserve(static_cast<size_t>(n_elems(shape)));
  for (int64_t row = 0; row < shape[0]; ++row) {
    const auto first = scales.begin() + row / kFrozenBlock * shape[1];
    rows.insert(rows.end(), first, first + shape[1]);
  }
  return encode_weights(rows, slot.type.dtype);
}

// By weight that is kept in eight bits.
std::map<std::string, FrozenWeight> frozen_weights(const Layout& layout, const WeightReader& base,
                                                   const AdaptedModel& model, int n_threads) {
  std::vector<ParameterSpec> matrices = model_parameters(model.spec);
  std::erase_if(matrices, [&](const ParameterSpec& one) {
    return !is_quantized(layout.slots.at(one.name).type.dtype);
  });
  std::map<std::string, FrozenWeight> frozen;
  std::mutex mutex;
  ThreadPool pool(n_threads);
  pool.run(std::ssize(matrices), [&](int64_t i, int) {
    const ParameterSpec& one = matrices[static_cast<size_t>(i)];
    FrozenWeight weight(base, one.name, one.shape, model.frozen);
    const std::scoped_lock lock(mutex);
    frozen.emplace(one.name, std::move(weight));
  });
  return frozen;
}

void write_base(Arenas& arenas, const Layout& layout, const WeightReader& base,
                const AdaptedModel& model) {
  const int n_threads = arenas.device().info().n_threads;
  const auto frozen = frozen_weights(layout, base, model, n_threads);
  std::vector<std::unique_ptr<DeviceMemory>> buffers(static_cast<size_t>(n_threads) + 1);
  read_in_pieces(base, model_parameters(model.spec), n_threads, [&](const WeightPiece& piece) {
    const std::string& name = piece.parameter.name;
    const Layout::Slot& slot = layout.slots.at(name);
    if (const auto weight = frozen.find(name); weight != frozen.end()) {
      std::vector<uint8_t> data(piece.values.size());
      weight->second.encode(piece.first, piece.values, data);
      return write_slot(arenas, buffers.at(static_cast<size_t>(piece.thread)), slot, piece.first,
                        std::as_bytes(std::span(data)));
    }
    write_slot(arenas, buffers.at(static_cast<size_t>(piece.thread)), slot, piece.first,
               encode_weights(piece.values, slot.type.dtype));
  });
  for (const auto& [name, weight] : frozen) {
    const Layout::Slot& slot = layout.slots.at(frozen_scale_name(name));
    write_slot(arenas, buffers.back(), slot, 0, scale_bytes(slot, weight.scales()));
  }
}

std::vector<float> first_a(const LoraAdapter& adapter, const AdaptedModel& model) {
  const RandomStream random{.name = name_hash(adapter.a()), .seed = model.seed};
  const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(adapter.n_in)));
  std::vector<float> values(static_cast<size_t>(model.lora.rank * adapter.n_in));
  for (size_t i = 0; i < values.size(); ++i) values[i] = bound * (2 * random.uniform(i) - 1);
  return values;
}

}  // namespace

void set_adapted_weights(Arenas& arenas, const Layout& layout, const WeightReader& base,
                         const AdaptedModel& model) {
  write_weights(arenas, layout, {}, {});  // zeroes
  write_base(arenas, layout, base, model);
  const Graph forward = build_model(model.spec, {.batch = 1, .seq = 1}, ModelOutputs::logits).graph;
  for (const LoraAdapter& adapter : lora_adapters(forward, model.lora)) {
    write_master(arenas, layout, adapter.a(), first_a(adapter, model));
  }
}

}  // namespace octet
