#include "train/adapted_weights.h"

#include <cmath>
#include <set>

#include "base/philox.h"
#include "infer/stored_weights.h"
#include "nn/model.h"
#include "train/weights.h"

namespace octet {
namespace {

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
  const std::set<std::string>& fresh = base.new_parameters();
  std::vector<ParameterSpec> stored;
  for (const ParameterSpec& parameter : model_parameters(model.spec)) {
    if (!fresh.contains(parameter.name)) {
      stored.push_back(parameter);
    } else {
      write_master(arenas, layout, parameter.name, initial_values(parameter, model.seed));
    }
  }
  load_weights(arenas, layout, stored, base, model.frozen);
  const Graph forward =
      build_model(model.spec, {.batch = 1, .seq = 1}, ModelOutputs::outputs).graph;
  for (const LoraAdapter& adapter : lora_adapters(forward, model.lora)) {
    write_master(arenas, layout, adapter.a(), first_a(adapter, model));
  }
}

}  // namespace octet
