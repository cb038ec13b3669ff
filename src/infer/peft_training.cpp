// An adapter's folder beside a base: whether that is its own, and training that goes on with it.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/named_enum.h"
#include "infer/adapter_note.h"
#include "infer/peft_adapter.h"
#include "infer/weights.h"
#include "io/model_files.h"

namespace octet {
namespace {

// "org/name" of a snapshot in the hub's cache, models--ORG--NAME/snapshots/COMMIT; else the last
// part of a path.
std::string peft_base_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  constexpr std::string_view kModels = "models--";
  const std::string above = parent_path(path);
  const std::string cached = file_name(parent_path(above));
  if (file_name(above) != "snapshots" || !cached.starts_with(kModels)) return file_name(path);
  const size_t dashes = cached.find("--", kModels.size());
  if (dashes == cached.npos) return file_name(path);
  return cached.substr(kModels.size(), dashes - kModels.size()) + "/" + cached.substr(dashes + 2);
}

}  // namespace

void expect_base(const Files& files, const std::string& folder, const ModelSpec& spec,
                 const PeftAdapter& adapter, const Log& log) {
  const auto refuse = [&](const std::string& expected, const std::string& got) {
    throw Error(ErrorCode::bad_data, "[adapter] {}: expected the base {}, got {}", adapter.folder,
                expected, got);
  };
  if (!adapter.base_hash.empty()) {
    std::vector<std::string> whole;
    for (const auto& [parameter, tensor] : adapter.saved) whole.push_back(parameter);
    const WeightReader weights(files, folder, spec, NonfiniteWeights::allowed);
    if (const std::string hash = weights_hash(weights, spec, whole); hash != adapter.base_hash)
      refuse(fmt::format("that it was trained beside, '{}' (weights {})", adapter.config.base,
                         adapter.base_hash),
             fmt::format("'{}' (weights {})", folder, hash));
    return;
  }
  const std::string& named = adapter.config.base;
  if (named.empty() || named == folder) return;
  const std::string base = peft_base_name(folder);
  const bool is_of_hub = base.find('/') != base.npos;
  if (base == named || (!is_of_hub && base == peft_base_name(named))) return;
  const bool is_name = std::ranges::count(named, '/') == 1 && !files.exists(named);
  if (is_of_hub && is_name)
    refuse(fmt::format("'{}' (base_model_name_or_path)", named), fmt::format("'{}'", base));
  log.warning("[adapter] {}: made beside '{}' (base_model_name_or_path), read beside '{}'",
              adapter.folder, named, folder);
}

PeftAdapter without_base_weights(const Files& files, const std::string& folder,
                                 const ModelSpec& spec, PeftAdapter adapter) {
  if (adapter.beneath.empty()) return adapter;
  const auto own = ModelFiles::open(files, join_path(adapter.folder, kPeftWeights));
  const WeightReader base(files, folder, spec, NonfiniteWeights::allowed);
  // A head that is tied is the embedding, and has no weight of its own.
  const auto stored = [&](const std::string& parameter) {
    const bool is_tied_head = spec.tied && parameter == model_def(spec.kind).head;
    return base.read(is_tied_head ? model_parameters(spec).front().name : parameter);
  };
  std::erase_if(adapter.beneath,
                [&](const auto& one) { return own.read_values(one.second) == stored(one.first); });
  return adapter;
}

PeftTraining peft_training(const PeftAdapter& adapter, const ModelSpec& base) {
  const auto refuse = [&](std::string_view key, std::string_view expected, std::string_view got) {
    throw Error(ErrorCode::bad_data,
                "[adapter] {}: '{}': expected {} in training, got {}; `octet convert {} MODEL` "
                "writes what both are together, as a model to train",
                adapter.folder, key, expected, got, adapter.folder);
  };
  const PeftConfig& config = adapter.config;
  if (config.dora && config.rslora) refuse("use_dora", "false beside use_rslora", "true");
  if (config.bias != PeftBias::none) refuse("bias", "none", enum_name(config.bias));
  if (!adapter.beneath.empty())
    refuse(adapter.beneath.begin()->second, "the weight that the base has", "another");
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
