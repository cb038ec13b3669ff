#include "train/weights.h"

#include <set>

#include "base/thread_pool.h"

namespace octet {
namespace {

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

void write_all(Arenas& arenas, const Layout& layout, const std::vector<ParameterSpec>& parameters,
               const ParameterValues& values) {
  ThreadPool pool(arenas.device().info().n_threads);
  pool.run(std::ssize(parameters), [&](int64_t i, int) {
    const ParameterSpec& parameter = parameters[static_cast<size_t>(i)];
    write_master(arenas, layout, parameter.name, values(parameter));
  });
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
                  .weight_run = layout.range_of(weight),
                  .weight = weight.type.dtype,
                  .weight_at = arenas.arena(weight.arena) + weight.offset};
  if (const Layout::Slot* master = find_master(layout, parameter.name)) {
    init.master_run = layout.range_of(*master);
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

void write_weights(Arenas& arenas, const Layout& layout,
                   const std::vector<ParameterSpec>& parameters, const ParameterValues& values) {
  zero_states(arenas, layout, parameters);
  write_all(arenas, layout, parameters, values);
}

void load_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, const WeightReader& weights,
                  const FirstWeights& how) {
  zero_states(arenas, layout, parameters);
  std::vector<ParameterSpec> stored, left;
  for (const ParameterSpec& parameter : parameters)
    (weights.new_parameters().contains(parameter.name) ? left : stored).push_back(parameter);
  load_weights(arenas, layout, stored, weights, how.format);
  write_all(arenas, layout, left,
            [&how](const ParameterSpec& one) { return initial_values(one, how.seed); });
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
