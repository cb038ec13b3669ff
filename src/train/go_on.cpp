#include "train/go_on.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/named_enum.h"
#include "infer/model_spec.h"
#include "infer/peft_adapter.h"
#include "infer/weights.h"
#include "io/model_files.h"
#include "passes/precision/policy.h"

namespace octet {
namespace {

class Keys {
 public:
  explicit Keys(LoadedConfig& loaded) : loaded_(loaded) {}

  // The adapter's value of a key, which nothing else may have said.
  template <typename T, typename Text>
  void take(const std::string& key, T& field, const T& value, const Text& text) {
    std::string& source = loaded_.source[key];
    const bool is_said = source != "default" && source != "derived";
    if (is_said && field != value) {
      throw Error(ErrorCode::invalid_argument,
                  "{}: expected {}, as lora.adapter '{}' has it, or no such key, got {} ({})", key,
                  text(value), loaded_.config.lora.adapter, text(field), source);
    }
    field = value;
    if (!is_said) source = "derived";
  }

 private:
  LoadedConfig& loaded_;
};

std::string list_text(const std::vector<std::string>& list) {
  return fmt::format("[{}]", fmt::join(list, ", "));
}

// Modules of parameters, as lora.save names them.
std::vector<std::string> modules_of(const std::vector<std::string>& parameters) {
  std::vector<std::string> modules;
  for (const std::string& name : parameters) {
    const std::string module = name.substr(0, name.rfind('.'));
    if (modules.empty() || modules.back() != module) modules.push_back(module);
  }
  return modules;
}

bool is_saved(const LoraConfig& lora, const std::string& module) {
  return std::ranges::any_of(lora.save, [&](const std::string& pattern) {
    return matches_pattern(pattern, module) ||
           matches_pattern(pattern, module.substr(module.rfind('.') + 1));
  });
}

// A masked head is a part of the pretrained model, which adapters leave as it is: where the folder
// has none, it begins anew and is trained whole.
void save_new_head(const Files& files, LoadedConfig& loaded) {
  RunConfig& config = loaded.config;
  if (config.lora.rank == 0 || config.model.head != ModelHead::masked ||
      !has_model_files(files, config.model.path))
    return;
  const WeightReader weights(files, config.model.path, model_from_config(files, config),
                             NonfiniteWeights::allowed, head_weights(config));
  const std::set<std::string>& fresh = weights.new_parameters();
  if (!fresh.empty() && config.train.export_as == ExportAs::adapter) {
    throw Error(ErrorCode::invalid_argument,
                "train.export: expected a model where model.head: masked begins anew ({}), got "
                "adapter",
                fmt::join(fresh, ", "));
  }
  for (const std::string& module : modules_of({fresh.begin(), fresh.end()})) {
    if (is_saved(config.lora, module)) continue;
    config.lora.save.push_back(module);
    loaded.source["lora.save"] = "derived";
  }
}

void take_adapter(const Files& files, LoadedConfig& loaded) {
  LoraConfig& lora = loaded.config.lora;
  if (lora.adapter.empty()) return;
  const ModelSpec spec = model_from_config(files, loaded.config);
  const PeftAdapter adapter = without_base_weights(files, loaded.config.model.path, spec,
                                                   read_peft_adapter(files, lora.adapter, spec));
  const PeftTraining found = peft_training(adapter, spec);
  Keys keys(loaded);
  const auto number = [](auto value) { return fmt::format("{}", value); };
  keys.take("lora.kind", lora.kind, found.lora.kind,
            [](LoraKind kind) { return std::string(enum_name(kind)); });
  keys.take("lora.rank", lora.rank, found.lora.rank, number);
  keys.take("lora.alpha", lora.alpha, found.lora.alpha, number);
  keys.take("lora.targets", lora.targets, found.lora.targets, list_text);
  keys.take("lora.ranks", lora.ranks, found.lora.ranks, list_text);
  keys.take("lora.save", lora.save, modules_of(found.saved), list_text);
  if (loaded.source["lora.dropout"] == "default") {
    lora.dropout = found.lora.dropout;
    loaded.source["lora.dropout"] = "derived";
  }
  if (lora.kind == LoraKind::dora && lora.dropout > 0) {
    throw Error(ErrorCode::invalid_argument,
                "lora.dropout: expected 0 with lora.kind dora (--set lora.dropout=0), got {:g} of "
                "lora.adapter '{}'",
                lora.dropout, lora.adapter);
  }
}

}  // namespace

void settle_adapters(const Files& files, LoadedConfig& loaded) {
  take_adapter(files, loaded);
  save_new_head(files, loaded);
}

}  // namespace octet
