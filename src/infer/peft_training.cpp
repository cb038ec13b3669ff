// Training that goes on with an adapter's folder.
#include <map>
#include <set>

#include "base/error.h"
#include "base/named_enum.h"
#include "infer/adapter_note.h"
#include "infer/peft_adapter.h"

namespace octet {
PeftTraining peft_training(const PeftAdapter& adapter, const ModelSpec& base) {
  const auto refuse = [&](std::string_view key, std::string_view expected, std::string_view got) {
    throw Error(ErrorCode::bad_data, "[adapter] {}: '{}': expected {} in training, got {}",
                adapter.folder, key, expected, got);
  };
  const PeftConfig& config = adapter.config;
  if (config.dora && config.rslora) refuse("use_dora", "false beside use_rslora", "true");
  if (config.bias != PeftBias::none) refuse("bias", "none", enum_name(config.bias));
  if (!adapter.beneath.empty())
    refuse(adapter.beneath.begin()->second, "no weights of the base", "some");
  if (adapter.unties)
    refuse("modules_to_save", "neither the head nor the embedding, which the base ties", "one");
  PeftTraining result;
  LoraOptions& lora = result.lora;
  lora.kind = config.dora ? LoraKind::dora : config.rslora ? LoraKind::rslora : LoraKind::lora;
  lora.rank = config.rank;
  lora.alpha = config.alpha;
  lora.dropout = config.dropout;
  lora.targets.clear();
  std::map<std::string, int64_t> n_all, n_own;
  for (const LoraAdapter& linear : adaptable_linears(base)) ++n_all[linear.part()];
  for (const PeftLinear& one : adapter.linears) {
    if (!one.is_of_layers) refuse("target_modules", "linears of the layers", one.adapter.module);
    ++n_own[one.adapter.part()];
  }
  std::set<std::string> targets;
  for (const PeftLinear& one : adapter.linears) {
    const LoraAdapter& linear = one.adapter;
    const std::string part = linear.part();
    targets.insert(n_all[part] == n_own[part] ? part : linear.module);
    if (linear.rank == lora.rank && linear.alpha == lora.alpha) continue;
    lora.ranks.push_back(linear.alpha == lora.alpha
                             ? fmt::format("{}={}", linear.module, linear.rank)
                             : fmt::format("{}={}:{}", linear.module, linear.rank, linear.alpha));
  }
  lora.targets.assign(targets.begin(), targets.end());
  for (const auto& [parameter, tensor] : adapter.saved) result.saved.push_back(parameter);
  return result;
}

}  // namespace octet
