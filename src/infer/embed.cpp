#include "infer/embed.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "base/thread_pool.h"
#include "data/json_values.h"
#include "data/text_files.h"
#include "infer/run_encoder.h"
#include "nn/shape.h"
#include "text/encode_texts.h"

namespace octet {
namespace {

constexpr std::string_view kSentenceFile = "sentence_bert_config.json";

[[noreturn]] void fail(const std::string& path, std::string_view expected, std::string_view got) {
  throw Error(ErrorCode::bad_data, "[embed] {}: expected {}, got {}", path, expected, got);
}

std::optional<Json> read_json(const Files& files, const std::string& path) {
  if (!files.exists(path)) return std::nullopt;
  return parse_json(files.read_text(path), path);
}

// Of "sentence_transformers.models.Pooling", in any package, its last part.
std::string class_of(const JsonObject& module) {
  const std::string type = module.string("type");
  return type.substr(type.rfind('.') + 1);
}

// "pooling_mode_mean_tokens": true, of several the one that is true; newer files name it.
Pooling read_pooling(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  const Json json = parse_json(files.read_text(path), path);
  const JsonObject config(json, path);
  constexpr std::string_view kExpected = "one mode, mean or cls";
  if (config.has("pooling_mode")) {
    const std::string mode = config.string("pooling_mode");
    if (mode != "mean" && mode != "cls") fail(path, kExpected, mode);
    return mode == "mean" ? Pooling::mean : Pooling::cls;
  }
  std::vector<std::string> modes;
  for (const auto& [key, value] : config.items()) {
    if (key.starts_with("pooling_mode_") && value == true) modes.push_back(key);
  }
  if (modes.size() != 1) fail(path, kExpected, fmt::format("{} modes", modes.size()));
  if (modes.front() == "pooling_mode_mean_tokens") return Pooling::mean;
  if (modes.front() == "pooling_mode_cls_token") return Pooling::cls;
  fail(path, kExpected, modes.front());
}

void read_modules(const Files& files, const std::string& folder, SentenceFolder& to) {
  const std::string path = join_path(folder, "modules.json");
  const std::optional<Json> modules = read_json(files, path);
  if (!modules) return;
  if (!modules->is_array()) fail(path, "a list of modules", modules->type_name());
  to.is_said = true;
  to.normalizes = false;
  bool is_pooled = false;
  for (const Json& one : *modules) {
    const JsonObject module(one, path);
    const std::string type = class_of(module);
    if (type == "Transformer" && !is_pooled) continue;
    if (type == "Pooling" && !is_pooled) {
      to.pooling = read_pooling(files, join_path(folder, module.string_or("path", "")));
      is_pooled = true;
    } else if (type == "Normalize" && is_pooled) {
      to.normalizes = true;
    } else {
      fail(path, "Transformer, Pooling and perhaps Normalize", type);
    }
  }
  if (!is_pooled) fail(path, "a module Pooling", "none");
}

}  // namespace

SentenceFolder read_sentence_folder(const Files& files, const std::string& folder) {
  SentenceFolder result;
  read_modules(files, folder, result);
  const std::string path = join_path(folder, kSentenceFile);
  if (const std::optional<Json> json = read_json(files, path)) {
    const JsonObject config(*json, path);
    if (config.boolean_or("do_lower_case", false)) fail(path, "do_lower_case: false", "true");
  }
  const std::string prompts = join_path(folder, "config_sentence_transformers.json");
  if (const std::optional<Json> json = read_json(files, prompts)) {
    const JsonObject config(*json, prompts);
    if (config.has("default_prompt_name"))
      fail(prompts, "no default_prompt_name", config.string("default_prompt_name"));
  }
  return result;
}

int64_t max_tokens_of_folder(const Files& files, const std::string& folder, int64_t most) {
  const std::string path = join_path(folder, kSentenceFile);
  if (const std::optional<Json> json = read_json(files, path)) {
    const int64_t n = JsonObject(*json, path).integer_or("max_seq_length", 0);
    if (n < 0) fail(path, "max_seq_length: a number of tokens", fmt::to_string(n));
    if (n > 0) return n;
  }
  const std::optional<Json> json = read_json(files, join_path(folder, "tokenizer_config.json"));
  if (!json || !json->is_object()) return 0;
  const Json n = json->value("model_max_length", Json());  // 1e30 where nobody set it
  const bool is_less = n.is_number() && n >= 1 && n < most;
  return is_less ? n.get<int64_t>() : 0;
}

namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{4} << 30;

struct EncodedText {
  EncodedTexts tokens;
  int64_t n_whole = 0;  // tokens before it was cut
};

std::vector<EncodedText> encode_all(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& texts, int64_t max_tokens,
                                    int threads) {
  std::vector<EncodedText> encoded(texts.size());
  ThreadPool pool(threads);
  std::vector<WordCache> words(static_cast<size_t>(pool.n_threads()));
  pool.run(std::ssize(texts), [&](int64_t text, int thread) {
    const auto i = static_cast<size_t>(text);
    EncodeTextsOptions how{.text = {.words = &words[static_cast<size_t>(thread)]}};
    EncodedText& to = encoded[i];
    to.tokens = encode_texts(tokenizer, texts[i], std::nullopt, how);
    to.n_whole = std::ssize(to.tokens.ids);
    if (to.n_whole <= max_tokens) return;
    how.max_tokens = max_tokens;
    to.tokens = encode_texts(tokenizer, texts[i], std::nullopt, how);
  });
  return encoded;
}

// features: [tokens, width] of one text.
void pool_text(std::span<const float> features, const EmbedOptions& options, std::span<float> to) {
  const size_t width = to.size(), n_tokens = features.size() / width;
  const size_t n = options.pooling == Pooling::cls ? 1 : n_tokens;
  std::vector<double> sums(width);
  for (size_t token = 0; token < n; ++token) {
    for (size_t i = 0; i < width; ++i) sums[i] += static_cast<double>(features[token * width + i]);
  }
  double squares = 0;
  for (double& x : sums) {
    x /= static_cast<double>(n);
    squares += x * x;
  }
  const double divisor = options.normalizes ? std::max(std::sqrt(squares), 1e-12) : 1;
  std::ranges::transform(sums, to.begin(),
                         [&](double x) { return static_cast<float>(x / divisor); });
}

// The model without what it has on top; Error where no features of tokens come out.
ModelSpec feature_spec(const ModelSpec& spec) {
  ModelSpec result = spec;
  result.head = ModelHead::features;
  const ModelDef& def = model_def(spec.kind);
  if (def.reads_text && !def.heads.empty() && head_of(result).head == ModelHead::features)
    return result;
  throw Error(ErrorCode::invalid_argument,
              "[embed] expected an encoder of text, such as bert, got {}", def.name);
}

int64_t checked_max_tokens(const ModelSpec& spec, int64_t wanted) {
  const int64_t most = longest_row(spec);
  if (wanted <= most) return wanted > 0 ? wanted : most;
  throw Error(ErrorCode::invalid_argument, "[embed] expected at most the model's {} tokens, got {}",
              most, wanted);
}

void expect_vocabulary(const Tokenizer& tokenizer, const ModelSpec& spec) {
  if (tokenizer.vocab_size() <= spec.vocab) return;
  throw Error(ErrorCode::invalid_argument,
              "[embed] expected a tokenizer of at most the model's {} tokens, got {}", spec.vocab,
              tokenizer.vocab_size());
}

[[noreturn]] void bad_text(const std::string& path, int64_t line, std::string_view got) {
  throw Error(ErrorCode::bad_data, "[embed] {}:{}: expected a text, or an object with text, got {}",
              path, line, got);
}

std::vector<std::string> read_json_texts(const Files& files, const std::string& path) {
  std::vector<std::string> texts;
  JsonValues values(files, path);
  while (const auto value = values.next()) {
    const OrderedJson json =
        parse_ordered_json(value->text, fmt::format("{}:{}", path, value->line));
    const bool has_text = json.is_object() && json.contains("text");
    const OrderedJson& text = has_text ? json.at("text") : json;
    if (!text.is_string()) bad_text(path, value->line, text.type_name());
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

}  // namespace

Embeddings embed_texts(const ModelSource& source, const Tokenizer& tokenizer,
                       const std::vector<std::string>& texts, const EmbedOptions& options,
                       const TextMachine& machine) {
  ModelSource features = source;
  features.spec = feature_spec(source.spec);
  const ModelSpec& spec = features.spec;
  expect_vocabulary(tokenizer, spec);
  const int64_t max_tokens = checked_max_tokens(spec, options.max_tokens);
  Embeddings result{.n = std::ssize(texts), .width = spec.hidden};
  result.values.resize(static_cast<size_t>(result.n * result.width));
  if (texts.empty()) return result;
  std::vector<EncodedText> encoded = encode_all(tokenizer, texts, max_tokens, options.threads);
  for (const EncodedText& text : encoded) {
    if (text.n_whole == 0) {
      throw Error(ErrorCode::invalid_argument,
                  "[embed] expected texts of a token or more, got an empty one");
    }
    result.n_tokens += std::ssize(text.tokens.ids);
    result.n_truncated += text.n_whole > max_tokens ? 1 : 0;
    result.longest = std::max(result.longest, text.n_whole);
  }
  std::vector<EncodedTexts> rows;
  rows.reserve(encoded.size());
  for (EncodedText& text : encoded) rows.push_back(std::move(text.tokens));
  const EncoderCall call{.output = "features",
                         .batch = options.batch,
                         .max_tokens = max_tokens,
                         .on_progress = options.on_progress};
  const auto width = static_cast<size_t>(result.width);
  run_encoder(features, rows, call, machine, [&](size_t text, std::span<const float> values) {
    pool_text(values, options, std::span(result.values).subspan(text * width, width));
  });
  return result;
}

std::vector<std::string> read_texts(const Files& files, const std::string& path) {
  const std::string name = unpacked_name(path);
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json") ||
      begins_with_objects(files, path))
    return read_json_texts(files, path);
  const std::string all = read_text_file(files, path, kMaxFileBytes);
  if (!is_readable_text(all)) {
    throw Error(ErrorCode::bad_data, "[embed] {}: expected UTF-8 text, got other bytes", path);
  }
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    texts.push_back(all.substr(at, end - at));
    if (texts.back().ends_with('\r')) texts.back().pop_back();
    at = end + 1;
  }
  return texts;
}

}  // namespace octet
