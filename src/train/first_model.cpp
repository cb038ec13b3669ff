#include "train/first_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "infer/adapter_note.h"
#include "infer/matrix_quantizer.h"
#include "infer/merged_weights.h"
#include "infer/model_spec.h"
#include "infer/peft_adapter.h"
#include "infer/stored_weights.h"
#include "infer/weights.h"
#include "io/model_files.h"
#include "nn/hf_config.h"
#include "passes/lora.h"
#include "passes/precision/store_frozen.h"
#include "train/run_setup.h"
#include "train/stopwatch.h"
#include "train/weights.h"

namespace octet {
namespace {

// The base holds all parameters that adapters leave as they are.
void expect_stored_head(const WeightReader& weights, const LoraOptions& lora) {
  const auto is_trained = [&](const std::string& name) {
    return std::ranges::find(lora.head, name) != lora.head.end();
  };
  if (std::ranges::all_of(weights.new_parameters(), is_trained)) return;
  throw Error(
      ErrorCode::invalid_argument,
      "train.freeze: expected no pattern of what begins anew ({}), which the adapters' file "
      "would not hold",
      fmt::join(weights.new_parameters(), ", "));
}

// Keys that say which head a folder has. A classifier's names stay with as many classes.
void take_head(Json& json, const ModelSpec& spec, const ModelSpec& before) {
  const Json own = parse_own_json(hf_config_text(spec));
  const bool keeps_names = has_classes(head_of(spec).head) && has_classes(head_of(before).head) &&
                           spec.classes == before.classes && json.contains("id2label") &&
                           std::ssize(json["id2label"]) == spec.classes;
  json.erase("num_labels");
  std::vector<const char*> keys = {"architectures", "problem_type"};
  if (!keeps_names) keys.insert(keys.end(), {"id2label", "label2id"});
  for (const char* key : keys) {
    json.erase(key);
    if (own.contains(key)) json[key] = own[key];
  }
}

struct AdaptedModel {
  ModelSpec spec;
  LoraOptions lora;
  FrozenFormat frozen = FrozenFormat::as_computed;
  uint32_t seed = 1;
};

std::vector<float> first_a(const LoraAdapter& adapter, const AdaptedModel& model) {
  const RandomStream random{.name = name_hash(adapter.a()), .seed = model.seed};
  const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(adapter.n_in)));
  std::vector<float> values(static_cast<size_t>(adapter.rank * adapter.n_in));
  for (size_t i = 0; i < values.size(); ++i) values[i] = bound * (2 * random.uniform(i) - 1);
  return values;
}

// |W| of each output, of the base as it is kept.
std::vector<float> kept_norms(const WeightReader& base, const LoraAdapter& adapter,
                              FrozenFormat format) {
  const Shape shape =
      adapter.out_in ? Shape{adapter.n_out, adapter.n_in} : Shape{adapter.n_in, adapter.n_out};
  std::optional<FrozenWeight> frozen;
  if (is_quantized(format)) frozen.emplace(base, adapter.weight(), shape, format);
  const auto norms = output_norms(adapter, [&](int64_t first, std::span<float> out) {
    base.read(adapter.weight(), first, out);
    if (frozen) frozen->round(first, out);
  });
  return {norms.begin(), norms.end()};
}

// The first weights of a run that trains adapters: its base as it is kept, and the adapters.
// Zeroes all states and writes
//   the base   rounded to nearest in the type of its slot, or as data and scales (FrozenWeight)
//   A          uniform in [-1 / sqrt(in), 1 / sqrt(in)), keyed by its name and the seed: PEFT's
//              Kaiming-uniform with a = sqrt(5)
//   B          zeros
//   m          of dora: |W| of each output, PEFT's
//   a head     that the base lacks: initial_values (train/weights.h)
// Throws Error{bad_data} where a weight that becomes eight bits is not finite.
void set_adapted_weights(Arenas& arenas, const Layout& layout, const WeightReader& base,
                         const AdaptedModel& model) {
  load_weights(arenas, layout, model_parameters(model.spec), base,
               {.seed = model.seed, .format = model.frozen});
  for (const LoraAdapter& adapter : adapters_of(model.spec, model.lora)) {
    write_master(arenas, layout, adapter.a(), first_a(adapter, model));
    if (model.lora.kind != LoraKind::dora) continue;
    const std::vector<float> norms = kept_norms(base, adapter, model.frozen);
    write_master(arenas, layout, lora_norm_name(adapter.module), norms);
    write_master(arenas, layout, adapter.magnitude(), norms);
  }
}

// In their place those of a folder of PEFT's, which the options follow (train/go_on.h).
void set_adapter(TrainEngine& engine, const TrainerMachine& machine, const RunConfig& config,
                 const ModelSpec& spec) {
  const PeftAdapter adapter = read_peft_adapter(machine.files, config.lora.adapter, spec);
  const auto reader = ModelFiles::open(machine.files, join_path(config.lora.adapter, kPeftWeights));
  const auto write = [&](const std::string& parameter, const std::string& tensor) {
    write_master(engine.arenas(), engine.layout(), parameter, reader.read_values(tensor));
  };
  for (const PeftLinear& one : adapter.linears) {
    write(one.adapter.a(), one.a);
    write(one.adapter.b(), one.b);
    if (!one.magnitude.empty()) write(one.adapter.magnitude(), one.magnitude);
  }
  for (const auto& [parameter, tensor] : adapter.saved) write(parameter, tensor);
}

}  // namespace

std::string set_first_weights(TrainEngine& engine, const TrainerMachine& machine,
                              const RunConfig& config, const ModelSpec& spec) {
  const std::vector<ParameterSpec> parameters = first_parameters(config, spec);
  const auto seed = static_cast<uint32_t>(config.train.seed);
  if (config.model.path.empty()) {
    init_weights(engine.arenas(), engine.layout(), parameters, seed, machine.catalogue);
    return "";
  }
  const Stopwatch watch;
  const WeightReader reader(machine.files, config.model.path, spec,
                            nonfinite_weights(config.model.allow_nonfinite), head_weights(config));
  if (config.lora.rank > 0) {
    const LoraOptions lora = lora_options(config, spec);
    expect_stored_head(reader, lora);
    set_adapted_weights(
        engine.arenas(), engine.layout(), reader,
        {.spec = spec, .lora = lora, .frozen = frozen_format(config), .seed = seed});
    if (!config.lora.adapter.empty()) set_adapter(engine, machine, config, spec);
  } else {
    load_weights(engine.arenas(), engine.layout(), parameters, reader, {.seed = seed});
  }
  const std::set<std::string>& fresh = reader.new_parameters();
  uint64_t n_bytes = 0;
  for (const ParameterSpec& one : parameters) {
    if (!fresh.contains(one.name)) n_bytes += reader.stored(one.name).n_bytes();
  }
  const std::string text = watch.text(static_cast<int64_t>(n_bytes));
  return fresh.empty() ? text : fmt::format("{}; begin anew: {}", text, fmt::join(fresh, ", "));
}

std::string model_description(const Files& files, const RunConfig& config, const ModelSpec& spec,
                              const std::vector<std::string>& label_names) {
  const bool is_new = config.model.path.empty();
  const std::string path = join_path(config.model.path, "config.json");
  std::string text = is_new ? hf_config_text(spec) : files.read_text(path);
  const ModelSpec before = is_new ? spec : parse_hf_config(text, path);
  const bool is_untied = spec.tied != before.tied;
  const bool has_new_head = !is_new && config.model.head != ModelHead::text;
  if (!is_untied && !has_new_head && label_names.empty()) return text;
  Json json = parse_json(text, path);
  if (is_untied) json["tie_word_embeddings"] = spec.tied;  // infer/model_spec.h
  if (has_new_head) take_head(json, spec, before);
  if (!label_names.empty()) json["label2id"] = json["id2label"] = Json::object();
  for (size_t i = 0; i < label_names.size(); ++i) {
    json["id2label"][fmt::to_string(i)] = label_names[i];
    json["label2id"][label_names[i]] = i;
  }
  return json.dump(2) + "\n";
}

}  // namespace octet
