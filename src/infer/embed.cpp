#include "infer/embed.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/input_limits.h"
#include "base/ordered_json.h"
#include "base/thread_pool.h"
#include "data/json_values.h"
#include "data/text_files.h"
#include "infer/run_encoder.h"
#include "nn/shape.h"

namespace octet {
namespace {

struct EncodedText {
  EncodedTexts tokens;
  int64_t n_whole = 0;  // tokens before it was cut
};

std::vector<EncodedText> encode_all(const Tokenizer& tokenizer,
                                    const std::vector<std::string>& texts,
                                    const EmbedOptions& options) {
  std::vector<EncodedText> encoded(texts.size());
  ThreadPool pool(options.threads);
  std::vector<WordCache> words(static_cast<size_t>(pool.n_threads()));
  pool.run(std::ssize(texts), [&](int64_t text, int thread) {
    const auto i = static_cast<size_t>(text);
    EncodeTextsOptions how{.text = {.words = &words[static_cast<size_t>(thread)]}};
    EncodedText& to = encoded[i];
    to.tokens = encode_texts(tokenizer, texts[i], std::nullopt, how);
    to.n_whole = std::ssize(to.tokens.ids);
    if (to.n_whole <= options.max_tokens) return;
    how.max_tokens = options.max_tokens;
    how.cut = options.cut;
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

std::string inner_padding_text(int64_t n, int64_t n_all, std::string_view unit,
                               const ModelSpec& spec) {
  return fmt::format(
      "{} of {} {} hold the padding's token ({}): it is read as any other, where transformers "
      "counts no position for it",
      n, n_all, unit, spec.pad_token);
}

namespace {

using RunRows = std::function<void(std::span<const EncodedTexts> rows, const VisitRow& visit)>;

// The part that embed_texts() and Embedder share, around the model.
Embeddings embed(const ModelSpec& spec, const Tokenizer& tokenizer,
                 const std::vector<std::string>& texts, const EmbedOptions& options,
                 const RunRows& run) {
  const int64_t max_tokens = options.max_tokens;
  const int64_t width_of_model = spec.hidden;
  Embeddings result{.n = std::ssize(texts), .width = width_of_model};
  if (options.width > 0) result.width = std::min(options.width, width_of_model);
  result.values.resize(static_cast<size_t>(result.n * result.width));
  if (texts.empty()) return result;
  std::vector<EncodedText> encoded = encode_all(tokenizer, texts, options);
  for (const EncodedText& text : encoded) {
    if (text.n_whole == 0) {
      throw Error(ErrorCode::invalid_argument,
                  "[embed] expected texts of a token or more, got an empty one");
    }
    result.n_tokens += std::ssize(text.tokens.ids);
    result.n_truncated += text.n_whole > max_tokens ? 1 : 0;
    result.longest = std::max(result.longest, text.n_whole);
    const bool counts_from_pad = model_def(spec.kind).positions_follow_pad;
    if (counts_from_pad && std::ranges::count(text.tokens.ids, spec.pad_token) > 0)
      ++result.n_padded_inside;
  }
  std::vector<EncodedTexts> rows;
  rows.reserve(encoded.size());
  for (EncodedText& text : encoded) rows.push_back(std::move(text.tokens));
  const auto width = static_cast<size_t>(result.width);
  std::vector<float> whole(static_cast<size_t>(width_of_model));  // of one text, before it is cut
  run(rows, [&](size_t text, std::span<const float> values) {
    pool_text(values, options, whole);
    std::copy_n(whole.begin(), width, result.values.begin() + static_cast<int64_t>(text * width));
  });
  return result;
}

ModelSource feature_source(const ModelSource& source, const Tokenizer& tokenizer) {
  ModelSource features = source;
  features.spec = feature_spec(source.spec);
  expect_vocabulary(tokenizer, features.spec);
  return features;
}

// With the length that the model takes where none is said.
EmbedOptions checked(const EmbedOptions& options, const ModelSpec& spec) {
  EmbedOptions result = options;
  result.max_tokens = checked_max_tokens(spec, options.max_tokens);
  return result;
}

EncoderCall feature_call(const EmbedOptions& options) {
  return {.output = "features",
          .batch = options.batch,
          .max_tokens = options.max_tokens,
          .on_progress = options.on_progress};
}

}  // namespace

Embeddings embed_texts(const ModelSource& source, const Tokenizer& tokenizer,
                       const std::vector<std::string>& texts, const EmbedOptions& options,
                       const TextMachine& machine) {
  const ModelSource features = feature_source(source, tokenizer);
  const EmbedOptions how = checked(options, features.spec);
  return embed(features.spec, tokenizer, texts, how,
               [&](std::span<const EncodedTexts> rows, const VisitRow& visit) {
                 run_encoder(features, rows, feature_call(how), machine, visit);
               });
}

struct Embedder::State {
  State(const ModelSource& source, const Tokenizer& with, const EmbedOptions& how,
        const TextMachine& machine)
      : features(feature_source(source, with)),
        tokenizer(with),
        options(checked(how, features.spec)),
        model(features, feature_call(options), machine) {}
  ModelSource features;
  const Tokenizer& tokenizer;
  EmbedOptions options;
  EncoderModel model;
};

Embedder::Embedder(const ModelSource& source, const Tokenizer& tokenizer,
                   const EmbedOptions& options, const TextMachine& machine)
    : state_(std::make_unique<State>(source, tokenizer, options, machine)) {}
Embedder::~Embedder() = default;

Embeddings Embedder::embed(const std::vector<std::string>& texts) {
  return octet::embed(state_->features.spec, state_->tokenizer, texts, state_->options,
                      [&](std::span<const EncodedTexts> rows, const VisitRow& visit) {
                        state_->model.run(rows, visit);
                      });
}

int64_t Embedder::max_tokens() const {
  return state_->options.max_tokens;
}

std::vector<std::string> read_texts(const Files& files, const std::string& path) {
  const std::string name = unpacked_name(path);
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json") ||
      begins_with_objects(files, path))
    return read_json_texts(files, path);
  const std::string all = read_text_file(files, path, input_limits().max_unpacked_bytes);
  if (!is_readable_text(all)) {
    throw Error(ErrorCode::bad_data, "[embed] {}: expected UTF-8 text, got other bytes", path);
  }
  std::vector<std::string> texts;
  for (size_t at = all.size() - without_byte_order_mark(all).size(); at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    texts.push_back(all.substr(at, end - at));
    if (texts.back().ends_with('\r')) texts.back().pop_back();
    at = end + 1;
  }
  return texts;
}

}  // namespace octet
