// Decoding settings in the files of a folder.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "infer/translate.h"

namespace octet {
namespace {

// Keys that change what is written, and the value, as JSON, with which they do not.
struct Neutral {
  const char* key;
  const char* value;
};
constexpr Neutral kNeutrals[] = {
    {"min_length", "0"},
    {"min_new_tokens", "0"},
    {"no_repeat_ngram_size", "0"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"repetition_penalty", "1.0"},
    {"encoder_repetition_penalty", "1.0"},
    {"num_beam_groups", "1"},
    {"diversity_penalty", "0.0"},
    {"do_sample", "false"},
    {"remove_invalid_values", "false"},
    {"renormalize_logits", "false"},
    {"constraints", "[]"},
    {"force_words_ids", "[]"},
    {"forced_bos_token_id", "null"},
    {"forced_decoder_ids", "[]"},
    {"suppress_tokens", "[]"},
    {"begin_suppress_tokens", "[]"},
    {"exponential_decay_length_penalty", "null"},
    {"sequence_bias", "{}"},
    {"guidance_scale", "1.0"},
    {"penalty_alpha", "0.0"},
    {"dola_layers", "null"},
    {"watermarking_config", "null"},
    {"stop_strings", "[]"},
    {"token_healing", "false"},
    {"max_time", "null"},
    {"num_return_sequences", "1"},
};
// Beside these, of models that write text by themselves: for each there is a flag, or none.
constexpr Neutral kOfText[] = {
    {"num_beams", "1"},      {"max_length", "null"},          {"max_new_tokens", "null"},
    {"bad_words_ids", "[]"}, {"forced_eos_token_id", "null"},
};
// Beside do_sample.
constexpr Neutral kOfSamples[] = {
    {"temperature", "1.0"}, {"top_k", "0"},       {"top_p", "1.0"},          {"min_p", "0.0"},
    {"top_h", "null"},      {"typical_p", "1.0"}, {"epsilon_cutoff", "0.0"}, {"eta_cutoff", "0.0"},
};

// Keys that choose no token: ids that are read elsewhere, what a call gives back or how it is made,
// and drafts, which change no text.
constexpr std::string_view kOthers[] = {
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "length_penalty",
    "early_stopping",
    "decoder_start_token_id",
    "transformers_version",
    "transformers_weights",
    "use_cache",
    "cache_implementation",
    "cache_config",
    "return_legacy_cache",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "prefill_chunk_size",
    "low_memory",
    "trust_remote_code",
    "compile_config",
    "disable_compile",
    "is_assistant",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_lookbehind",
    "target_lookbehind",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
    "use_model_defaults",
    "generation_kwargs",
};

class Reader {
 public:
  explicit Reader(const JsonObject& json) : json_(json) {}

  void read(DecodingDefaults& defaults) const {
    for (const Neutral& one : kNeutrals) {
      if (json_.has(one.key) && json_.at(one.key) != parse_own_json(one.value))
        bad(one.key, one.value);
    }
    BeamOptions& beams = defaults.beams;
    if (json_.has("num_beams")) beams.n_beams = count("num_beams", 1);
    if (json_.has("length_penalty")) beams.length_penalty = json_.number("length_penalty");
    if (json_.has("early_stopping")) beams.early_stopping = early_stopping();
    // A configuration of the model has the start token that its builder reads.
    const bool is_generation_s = file_name(json_.where()) == "generation_config.json";
    if (json_.has("decoder_start_token_id")) {
      defaults.start = static_cast<int32_t>(count("decoder_start_token_id", 0));
    } else if (is_generation_s && json_.has("bos_token_id")) {
      defaults.start = static_cast<int32_t>(count("bos_token_id", 0));
    }
    if (json_.has("max_new_tokens")) {
      defaults.max_tokens = count("max_new_tokens", 1);
    } else if (json_.has("max_length")) {
      defaults.max_tokens = count("max_length", 2) - 1;
    }
    if (json_.has("forced_eos_token_id"))
      defaults.rules.forced_last = static_cast<int32_t>(count("forced_eos_token_id", 0));
    if (json_.has("bad_words_ids")) defaults.rules.banned = banned();
  }

 private:
  [[noreturn]] void bad(const std::string& key, std::string_view expected) const {
    throw Error(ErrorCode::bad_data, "[generate] {}: '{}': expected {}, got {}", json_.where(), key,
                expected, json_.at(key).dump());
  }
  int64_t count(const std::string& key, int64_t least) const {
    if (!json_.at(key).is_number_integer() || json_.at(key) < least || json_.at(key) > INT32_MAX)
      bad(key, fmt::format("an integer of at least {}", least));
    return json_.integer(key);
  }
  EarlyStopping early_stopping() const {
    const Json& value = json_.at("early_stopping");
    if (value == "never") return EarlyStopping::never;
    if (!value.is_boolean()) bad("early_stopping", "true, false or \"never\"");
    return value.get<bool>() ? EarlyStopping::yes : EarlyStopping::no;
  }
  std::vector<int32_t> banned() const {
    std::vector<int32_t> ids;
    const Json& words = json_.at("bad_words_ids");
    if (!words.is_array()) bad("bad_words_ids", "a list");
    for (const Json& word : words) {
      if (!word.is_array() || word.size() != 1 || !word.front().is_number_integer())
        bad("bad_words_ids", "lists of one token each");
      ids.push_back(word.front().get<int32_t>());
    }
    return ids;
  }

  const JsonObject& json_;
};

// JSON of a file; null where there is none.
Json json_of(const Files& files, const std::string& path) {
  return files.exists(path) ? parse_json(files.read_text(path), path) : Json();
}

bool cleans_spaces(const Files& files, const std::string& tokenizer) {
  if (tokenizer.empty() || !files.exists(tokenizer)) return false;
  const std::string folder = files.is_directory(tokenizer) ? tokenizer : parent_path(tokenizer);
  const std::string path = join_path(folder, "tokenizer_config.json");
  const Json config = json_of(files, path);
  if (!config.is_object()) return false;
  const JsonObject said(config, path);
  if (!said.boolean_or("clean_up_tokenization_spaces", false)) return false;
  const Json whole = json_of(files, join_path(folder, "tokenizer.json"));
  const bool is_bpe = whole.is_object() && whole.contains("model") && whole["model"].is_object() &&
                      whole["model"].value("type", "") == "BPE";
  return !is_bpe ||
         said.boolean_or("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
                         false);
}

bool is_known(std::string_view key) {
  const auto has = [&](std::span<const Neutral> keys) {
    return std::ranges::any_of(keys, [&](const Neutral& one) { return one.key == key; });
  };
  return has(kNeutrals) || has(kOfText) || has(kOfSamples) ||
         std::ranges::find(kOthers, key) != std::end(kOthers);
}

std::string decoding_file(const Files& files, const ModelSource& source) {
  std::vector<std::string> folders = {source.folder};
  if (!source.weights.adapter.empty()) folders.insert(folders.begin(), source.weights.adapter);
  if (source.run && !source.run->model.path.empty()) folders.push_back(source.run->model.path);
  for (const std::string& folder : folders) {
    std::string path = join_path(folder, "generation_config.json");
    if (files.exists(path)) return path;
  }
  return join_path(source.folder, "config.json");
}

}  // namespace

void tell_unused_decoding(const Files& files, const ModelSource& source, const Log& log) {
  const std::string path = decoding_file(files, source);
  if (!files.exists(path)) return;
  const Json root = parse_json(files.read_text(path), path);
  const JsonObject json(root, path);
  std::string unused;
  const auto add = [&](const std::string& key, const Json& value) {
    unused += fmt::format("{}'{}'", unused.empty() ? "" : ", ", key);
    if (!value.is_structured()) unused += " " + value.dump();
  };
  const auto take = [&](std::span<const Neutral> neutrals) {
    for (const Neutral& one : neutrals) {
      if (json.has(one.key) && json.at(one.key) != parse_own_json(one.value))
        add(one.key, json.at(one.key));
    }
  };
  const bool translates = model_def(source.spec.kind).translates;  // which reads the others
  if (!translates) {
    take(kNeutrals);
    take(kOfText);
  }
  const bool draws = json.has("do_sample") && json.at("do_sample") == true;
  if (draws && !translates) take(kOfSamples);
  for (const Neutral& one : kOfSamples) {
    const bool is_number = !json.has(one.key) || json.at(one.key).is_number();
    if ((translates || !draws) && !is_number && !json.at(one.key).is_null())
      add(one.key, json.at(one.key));
  }
  if (file_name(path) == "generation_config.json") {
    for (const auto& [key, value] : root.items()) {
      if (!key.starts_with('_') && !is_known(key)) add(key, value);
    }
  }
  if (!unused.empty()) {
    log.warning("[generate] {}: not used: {}; the command says how tokens are chosen", path,
                unused);
  }
}

DecodingDefaults decoding_defaults(const Files& files, const ModelSource& source) {
  DecodingDefaults defaults;
  defaults.start = static_cast<int32_t>(source.spec.start_token);
  defaults.cleans_spaces = cleans_spaces(files, source.tokenizer);
  std::string path = join_path(source.folder, "generation_config.json");
  if (!files.exists(path)) path = join_path(source.folder, "config.json");
  if (!files.exists(path)) return defaults;
  const Json root = parse_json(files.read_text(path), path);
  Reader(JsonObject(root, path)).read(defaults);
  const bool fits = defaults.start < source.spec.vocab &&
                    defaults.rules.forced_last.value_or(0) < source.spec.vocab;
  if (fits) return defaults;
  throw Error(ErrorCode::bad_data, "[generate] {}: expected tokens below the vocabulary of {}",
              path, source.spec.vocab);
}

}  // namespace octet
