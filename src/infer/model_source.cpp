#include "infer/model_source.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/gguf.h"
#include "base/json.h"
#include "base/named_enum.h"
#include "config/load.h"
#include "infer/adapter_note.h"
#include "infer/class_names.h"
#include "infer/folder_keys.h"
#include "infer/model_spec.h"
#include "infer/peft_adapter.h"
#include "io/checkpoint.h"
#include "io/model_files.h"
#include "io/modelopt_config.h"
#include "io/quantization_config.h"
#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "nn/shape.h"
#include "text/tokenizer.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

// A run keeps the config.json of the folder that it started from, so that it does not depend on it.
ModelSpec spec_of_run(const Files& files, const std::string& run, const RunConfig& config) {
  if (config.model.path.empty()) {
    ModelSpec spec = model_from_config(files, config);
    const ModelDef& def = model_def(spec.kind);
    if (!def.positions_follow_pad && !def.translates) return spec;
    const ModelSpec begun = read_hf_config(files, run);  // with the tokenizer of its time
    spec.start_token = begun.start_token;
    if (!def.positions_follow_pad) return spec;
    spec.pad_token = begun.pad_token;
    spec.max_positions = begun.max_positions;
    return spec;
  }
  ModelSpec spec = with_new_head(files, run, read_hf_config(files, run), config);
  spec.rope_seq = config.model.seq;
  spec.source_seq = config.model.source_seq;
  spec.images = config.model.images;
  return spec;
}

ModelSource source_of_run(const Files& files, const std::string& run,
                          const std::string& checkpoint) {
  ModelSource source;
  LoadedConfig loaded = load_config(join_path(run, "config.yaml"));
  // Runs begun before these keys were there read what was stored, and had powers of two.
  RecipeConfig& recipe = loaded.config.recipe;
  if (loaded.source.at("recipe.forward_reads") == "default")
    recipe.forward_reads = ForwardReads::stored;
  if (loaded.source.at("recipe.block_scale") == "default") recipe.block_scale = BlockScale::power;
  if (loaded.source.at("recipe.accumulation") == "default")
    recipe.accumulation = Accumulation::forward;
  source.recipe_options.forward_reads = recipe.forward_reads;
  source.run = std::move(loaded.config);
  source.run->out = run;  // a run may have moved
  source.spec = spec_of_run(files, run, *source.run);
  source.folder = run;
  source.weights = join_path(checkpoint, "model.safetensors");
  source.recipe = source.run->recipe.base;
  source.tokenizer = source.run->data.tokenizer;
  source.seq = source.run->model.seq;
  source.nonfinite = nonfinite_weights(source.run->model.allow_nonfinite);
  return source;
}

ModelSource source_of_folder(const Files& files, const std::string& folder) {
  ModelSource source;
  source.spec = read_folder_spec(files, folder);
  source.spec.rope_seq = source.spec.max_positions;
  source.folder = folder;
  source.weights = folder;
  source.tokenizer =
      find_tokenizer(files, folder).value_or(source.spec.vocab == 256 ? "bytes" : "");
  source.seq = longest_row(source.spec);
  return source;
}

// Linears that are read as they are stored, and that other programs look for in eight bits.
void tell_unquantized(const ModelFiles& weights, const ModelSpec& spec,
                      const QuantizationConfig& quantization, const std::string& path,
                      const Log& log) {
  if (quantization.others_are_first || quantization.is_decompressed) return;
  std::vector<std::string> found;
  for (const ParameterSpec& p : model_parameters(spec)) {
    const StoredTensor* stored = weights.find(p.name);
    const std::string module = p.name.substr(0, p.name.rfind('.'));
    const bool is_of_layer = is_linear(p) && p.name != model_def(spec.kind).head;
    const bool is_eight = stored == nullptr || !stored->dtype || is_quantized(*stored->dtype);
    if (is_of_layer && !is_eight && quantization.group_of(module_names(spec, p.name)) != nullptr)
      found.push_back(module);
  }
  if (found.empty()) return;
  log.warning(
      "[config.json] {}: '{}' is not in 8 bits, nor in 'ignore' ({} in all): read as it is stored, "
      "where other programs look for scales",
      path, found.front(), found.size());
}

// Settings of a quantized folder for its cache and for outputs: the cache stays as it is computed,
// and outputs are not quantized. Where the weights cannot be read, what reads them says so.
void tell_unused_quantization(const Files& files, const std::string& folder, const ModelSpec& spec,
                              const Log& log) {
  const std::string path = join_path(folder, "config.json");
  const Json config = parse_json(config_with_modelopt(files, folder), path);
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return;
  const auto has = [](const Json& object, const char* key) {
    return object.is_object() && object.contains(key) && !object[key].is_null();
  };
  std::vector<std::string> unused;
  for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo"}) {
    if (has(*found, key)) unused.emplace_back(key);
  }
  for (const Json& group : found->value("config_groups", Json::object())) {
    if (!has(group, "output_activations")) continue;
    unused.emplace_back("output_activations");
    break;
  }
  try {
    const ModelFiles weights = ModelFiles::open(files, folder);
    if (const auto quantization = read_quantization_config(files, folder))
      tell_unquantized(weights, spec, *quantization, path, log);
    std::vector<std::string> scales = weights.names();
    std::erase_if(scales, [](const std::string& name) { return !is_unused_scale(name); });
    if (!scales.empty())
      unused.push_back(fmt::format("{} scales such as '{}'", scales.size(), scales.front()));
  } catch (const Error&) {
  }
  if (unused.empty()) return;
  log.warning("[config.json] {}: {} are not used: the KV cache and outputs are not quantized", path,
              fmt::join(unused, ", "));
}

// None of one that is refused: what reads the weights says why.
std::vector<std::string> unknown_quantization_keys(const Files& files, const std::string& folder) {
  try {
    const auto quantization = read_quantization_config(files, folder);
    return quantization ? quantization->unknown_keys : std::vector<std::string>();
  } catch (const Error&) {
    return {};
  }
}

std::string run_of_checkpoint(const std::string& checkpoint) {
  return parent_path(parent_path(checkpoint));
}

bool is_checkpoint_of_run(const Files& files, const std::string& path) {
  return files.exists(join_path(path, "COMPLETE")) &&
         files.exists(join_path(run_of_checkpoint(path), "config.yaml"));
}

}  // namespace

namespace {

void tell_keys(const std::vector<FolderKey>& keys, const std::string& folder, const Log& log,
               UnknownKeys unknown) {
  constexpr size_t kMaxLines = 20;
  if (keys.empty()) return;
  if (unknown == UnknownKeys::are_errors) {
    const auto& [file, key] = keys.front();
    throw Error(ErrorCode::bad_data, "[{}] {}: expected known keys, got '{}'", file,
                join_path(folder, file), key);
  }
  for (size_t i = 0; i < std::min(keys.size(), kMaxLines); ++i) {
    log.warning("[{}] {}: '{}' is not known, and ignored", keys[i].file,
                join_path(folder, keys[i].file), keys[i].key);
  }
  if (keys.size() > kMaxLines)
    log.warning("[model] {}: {} more keys are not known", folder, keys.size() - kMaxLines);
}

}  // namespace

void tell_tokens_beside(const Files& files, const std::string& folder, const Log& log) {
  BesideJson beside;
  try {
    beside = read_beside_json(files, folder);
  } catch (const Error&) {
    return;
  }
  if (beside.contradicts_legacy) {
    log.warning(
        "[tokenizer] {}: 'legacy' says which parts of a text begin with a space otherwise than "
        "tokenizer.json, which is read as it is; transformers 5 takes 'legacy'",
        folder);
  }
  if (beside.tokens.empty()) return;
  log.warning(
      "[tokenizer] {}: '{}' is named beside tokenizer.json, which does not have it ({} in all): "
      "text as any other here, where transformers adds a token",
      folder, beside.tokens.front(), beside.tokens.size());
}

void take_tokenizer_of_model(const Files& files, LoadedConfig& loaded) {
  const std::string& folder = loaded.config.model.path;
  const bool is_chosen = loaded.source.at("data.tokenizer") != "default";
  if (is_chosen || folder.empty() || !files.exists(folder)) return;
  if (const auto found = find_tokenizer(files, folder)) loaded.config.data.tokenizer = *found;
}

void tell_unknown_keys(const Files& files, const std::string& model_folder, const Log& log,
                       UnknownKeys unknown) {
  const std::string path = join_path(model_folder, "config.json");
  std::vector<FolderKey> keys;
  for (const std::string& key : parse_hf_config_and_keys(files.read_text(path), path).unknown)
    keys.push_back({"config.json", key});
  for (const std::string& key : unknown_quantization_keys(files, model_folder))
    keys.push_back({"config.json", "quantization_config." + key});
  std::ranges::copy(unknown_folder_keys(files, model_folder), std::back_inserter(keys));
  if (has_untied_head(files, model_folder)) {
    log.warning(
        "[model] {}: tie_word_embeddings is true, but the head that is stored differs from the "
        "embedding: it is a parameter of its own",
        path);
  }
  if (class_names_differ(parse_json(files.read_text(path), path)))
    log.warning("[model] {}: label2id says otherwise than id2label, which counts", path);
  tell_tokens_beside(files, model_folder, log);
  tell_keys(keys, model_folder, log, unknown);
}

void tell_beside_tokenizer(const Files& files, const std::string& tokenizer, const Log& log,
                           UnknownKeys unknown) {
  if (!files.exists(tokenizer)) return;
  const bool is_folder = files.is_directory(tokenizer);
  const std::string folder = is_folder ? tokenizer : parent_path(tokenizer);
  if (!is_folder && file_name(tokenizer) != "tokenizer.json") return;
  tell_tokens_beside(files, folder, log);
  std::vector<FolderKey> keys = unknown_folder_keys(files, folder);
  std::erase_if(keys, [](const FolderKey& key) { return key.file != "tokenizer_config.json"; });
  tell_keys(keys, folder, log, unknown);
}

bool is_run(const Files& files, const std::string& path) {
  return files.exists(join_path(path, "config.yaml")) || is_checkpoint_of_run(files, path);
}

ModelSource with_adapter(const Files& files, ModelSource source, const std::string& adapter,
                         const Log& log) {
  if (source.run || !source.weights.adapter.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--adapter: expected a model folder to add it to, got {} '{}'",
                source.run ? "the run" : "one with the adapter",
                source.run ? source.folder : source.weights.adapter);
  }
  const PeftAdapter found = read_peft_adapter(files, adapter, source.spec);
  expect_base(files, source.folder, source.spec, found, log);
  source.spec = adapted_spec(source.spec, found);
  source.weights.adapter = adapter;
  if (const auto tokenizer = find_tokenizer(files, adapter)) source.tokenizer = *tokenizer;
  return source;
}

ModelSource find_model_source(Files& files, const std::string& path, const Log& log,
                              UnknownKeys unknown) {
  const auto has = [&](std::string_view name) { return files.exists(join_path(path, name)); };
  if (is_adapter_folder(files, path)) {
    const std::string base = read_peft_config(files, path).base;
    const bool is_there = !base.empty() && files.exists(join_path(base, "config.json"));
    if (is_there)
      return with_adapter(files, find_model_source(files, base, log, unknown), path, log);
    throw Error(ErrorCode::bad_data,
                "[adapter] '{}': expected base_model_name_or_path to be a model folder, got '{}': "
                "--model BASE --adapter {} names another",
                path, base, path);
  }
  if (has("config.yaml")) {
    const auto newest = Checkpoints(files, join_path(path, "ckpt"), log).newest();
    if (newest) return source_of_run(files, path, newest->path);
    throw Error(ErrorCode::bad_data, "[model] '{}': expected a whole checkpoint in ckpt/, got none",
                path);
  }
  if (is_checkpoint_of_run(files, path)) {
    const LoadedCheckpoint loaded = Checkpoints(files, parent_path(path), log).load(path);
    return source_of_run(files, run_of_checkpoint(path), loaded.path);
  }
  if (has("config.json")) {
    tell_unknown_keys(files, path, log, unknown);
    ModelSource source = source_of_folder(files, path);
    tell_unused_quantization(files, path, source.spec, log);
    return source;
  }
  if (is_gguf_name(path) && files.exists(path)) {
    throw Error(ErrorCode::bad_data,
                "[model] '{}': expected a model folder, got a GGUF file (octet convert {} DIR)",
                path, path);
  }
  throw Error(
      ErrorCode::bad_data,
      "[model] '{}': expected a run (config.yaml, ckpt/), one of its checkpoints, or a model "
      "folder (config.json, model.safetensors), got {}",
      path, files.exists(path) ? "none of them" : "no such path");
}

}  // namespace octet
