#include "cli/finetune_flags.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/gguf.h"
#include "base/json.h"
#include "base/parse_text.h"
#include "cli/model_folder.h"
#include "cli/recipe_files.h"
#include "config/table.h"
#include "infer/import_gguf.h"
#include "train/go_on.h"

namespace octet {
namespace {

constexpr const char* kGroup = "Without a configuration file, or over its keys";

// True if `--set TEXT` is of this key: "optim.lr=1", or "optim={lr: 1}"; of recipe.base also
// "recipe=coat".
bool sets_key(std::string_view set, std::string_view key) {
  const size_t equals = set.find('='), dot = key.rfind('.');
  if (equals == set.npos) return false;
  const std::string_view path = set.substr(0, equals), value = set.substr(equals + 1);
  if (path == key) return true;
  if (dot == key.npos || path != key.substr(0, dot)) return false;
  if (key == "recipe.base" && !value.starts_with('{')) return true;
  const std::string inner = fmt::format("{}:", key.substr(dot + 1));
  for (size_t at = value.find(inner); at != value.npos; at = value.find(inner, at + 1)) {
    if (at > 0 && std::string_view("{, \"'").find(value[at - 1]) != std::string_view::npos)
      return true;
  }
  return false;
}

std::vector<std::string> names_in(const ConfigRow& row) {
  std::vector<std::string> names;
  for (const std::string_view name : row.limits.names()) names.emplace_back(name);
  return names;
}

// An empty word is a variable of a shell that is not set.
std::string why_empty(const std::string& text) {
  return text.empty() ? "expected a value, got nothing" : "";
}

// The key's 0 leaves the length to train.steps, which nobody means by no passes over the data.
constexpr std::string_view kEpochs = "train.epochs";
std::string why_no_epochs(const std::string& text) {
  return parse_number<double>(text) == 0 ? "expected a number above 0, got " + text : "";
}

void expect_file_or_model(const FinetuneFlags& flags, NeedsData needs) {
  const bool has_file = !flags.config.empty(), has_model = !flags.finetune.model.empty();
  const bool has_data = !flags.finetune.data.empty();
  const bool fits = needs == NeedsData::yes ? has_file || has_data : has_model || !has_data;
  if (has_file != has_model && fits) return;
  throw Error(ErrorCode::invalid_argument,
              "{}: expected a configuration file, or --model DIR{}, got {}",
              needs == NeedsData::yes ? "train" : "plan",
              needs == NeedsData::yes ? " with --data FILE" : "",
              has_file     ? "a file and --model (--set model.path=DIR is its key)"
              : !has_model ? "no model"
                           : "no data");
}

}  // namespace

void add_finetune_flags(CLI::App& command, FinetuneFlags& flags, NeedsData needs) {
  command
      .add_option("config", flags.config,
                  "YAML file (`octet docs keys`), or a recipe's name (`octet recipes`)")
      ->type_name("CONFIG");
  FinetuneOptions& finetune = flags.finetune;
  command
      .add_option(
          "--model", finetune.model,
          needs == NeedsData::yes
              ? "folder of the model to start from (Hugging Face), a run with an export, a .gguf "
                "file, or org/name of the hub's local cache"
              : "folder of the model to fine-tune, where config.json alone is enough, a run "
                "with an export, a .gguf file, or org/name of the hub's local cache")
      ->type_name("DIR|FILE")
      ->check(why_empty)
      ->group(kGroup);
  command
      .add_option("--adapter", flags.adapter,
                  "an adapter's folder (PEFT) that training goes on with (lora.adapter)")
      ->type_name("DIR")
      ->check(why_empty);
  command
      .add_option(
          "--data", finetune.data,
          needs == NeedsData::yes
              ? "conversations (.json, .jsonl), text or token shards; may be repeated"
              : "what it will be fine-tuned on, whose longest record says how long rows are; "
                "may be repeated")
      ->type_name("FILE")
      ->check(why_empty)
      ->group(kGroup);
  if (needs == NeedsData::yes) {
    command
        .add_option("--out", finetune.out,
                    "folder of the run; without it the file's, or runs/finetune")
        ->type_name("RUN")
        ->check(why_empty)
        ->group(kGroup);
  }
  command
      .add_option("--recipe", finetune.recipe, "precision recipe; without it the file's, or bf16")
      ->check(why_empty)
      ->group(kGroup);
  for (KeyFlag& flag : flags.keys) {
    if (needs == NeedsData::no && !flag.is_of_plans) continue;
    const ConfigRow& row = *find_config_row(flag.key);
    const bool is_number = row.limits.names == nullptr;
    CLI::Option* option =
        command.add_option(flag.flag, flag.value, fmt::format("{} ({})", flag.help, flag.key))
            ->type_name(is_number ? "N" : "NAME")
            ->check(is_number ? as_key(flag.key) : one_of(names_in(row)))
            ->group(kGroup);
    if (flag.key == kEpochs) option->check(why_no_epochs);
  }
}

void expect_no_set(std::string_view flag, std::string_view key,
                   const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    if (!sets_key(set, key)) continue;
    throw Error(ErrorCode::invalid_argument,
                "{}: expected this or --set {}, got both of the key {}", flag, set, key);
  }
}

std::vector<std::string> sets_with_flags(const FinetuneFlags& flags,
                                         std::vector<std::string> sets) {
  const std::vector<std::string> given = sets;
  const FinetuneOptions& finetune = flags.finetune;
  const std::pair<std::string, const char*> others[] = {
      {finetune.model.empty() ? "" : "--model " + finetune.model, "model.path"},
      {finetune.data.empty() ? "" : "--data " + finetune.data.front(), "data.train"},
      {finetune.recipe.empty() ? "" : "--recipe " + finetune.recipe, "recipe.base"},
      {finetune.out.empty() ? "" : "--out " + finetune.out, "out"},
      {flags.adapter.empty() ? "" : "--adapter " + flags.adapter, "lora.adapter"}};
  for (const auto& [flag, key] : others) {
    if (!flag.empty()) expect_no_set(flag, key, given);
  }
  for (const KeyFlag& flag : flags.keys) {
    if (flag.value.empty()) continue;
    expect_no_set(fmt::format("{} {}", flag.flag, flag.value), flag.key, given);
    sets.push_back(fmt::format("{}={}", flag.key, flag.value));
  }
  if (flags.config.empty()) return sets;
  if (!finetune.data.empty()) sets.push_back("data.train=" + Json(finetune.data).dump());
  if (!finetune.recipe.empty()) sets.push_back("recipe.base=" + Json(finetune.recipe).dump());
  if (!finetune.out.empty()) sets.push_back("out=" + Json(finetune.out).dump());
  return sets;
}

LoadedConfig configuration_of(const FinetuneFlags& flags, const std::vector<std::string>& sets,
                              NeedsData needs, const Log& log) {
  expect_file_or_model(flags, needs);
  std::vector<std::string> all = sets_with_flags(flags, sets);
  FinetuneOptions finetune = flags.finetune;
  const bool has_file = !flags.config.empty();
  ModelPaths paths{.model = "", .adapter = flags.adapter};
  if (!has_file) paths = model_paths(posix_files(), finetune.model, flags.adapter, log);
  if (!paths.adapter.empty()) all.push_back("lora.adapter=" + Json(paths.adapter).dump());
  if (has_file) {
    LoadedConfig loaded = load_config(config_path(flags.config), all);
    std::string& path = loaded.config.model.path;
    if (is_gguf_name(path)) path = model_path(posix_files(), path, log);
    settle_adapters(posix_files(), loaded);
    return loaded;
  }
  finetune.model = model_folder(posix_files(), paths.model, log);
  return finetune_config(posix_files(), finetune, all);
}

}  // namespace octet
