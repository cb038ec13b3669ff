#include "train/adapted_weights.h"

#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "formats/codec.h"
#include "infer/inference.h"
#include "infer/merged_weights.h"
#include "nn/model.h"
#include "train/weights.h"

namespace octet {
namespace {

void write_slot(Arenas& arenas, const Layout::Slot& slot, std::span<const std::byte> bytes) {
  CHECK(static_cast<int64_t>(bytes.size()) == slot.type.n_bytes());
  if (bytes.empty()) return;
  arenas.device().copy_in(arenas.lane(slot.lane) + slot.offset, bytes.data(), slot.type.n_bytes());
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

void write_base(Arenas& arenas, const Layout& layout, const WeightReader& base,
                const AdaptedModel& model) {
  const std::vector<ParameterSpec> parameters = model_parameters(model.spec);
  ThreadPool pool(arenas.device().info().n_threads);
  pool.run(static_cast<int64_t>(parameters.size()), [&](int64_t i, int) {
    const std::string& name = parameters[static_cast<size_t>(i)].name;
    const Layout::Slot& slot = layout.slots.at(name);
    const std::vector<float> values = base.read(name);
    if (!is_quantized(slot.type.dtype)) {
      return write_slot(arenas, slot, encode_weights(values, slot.type.dtype));
    }
    const FrozenMatrix frozen = freeze(model.frozen, slot.type.shape, values, name);
    const Layout::Slot& scales = layout.slots.at(frozen_scale_name(name));
    write_slot(arenas, slot, std::as_bytes(std::span(frozen.data)));
    write_slot(arenas, scales, scale_bytes(scales, frozen.scales));
  });
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
