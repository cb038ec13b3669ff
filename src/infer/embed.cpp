#include "infer/embed.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/integer.h"
#include "base/ordered_json.h"
#include "base/thread_pool.h"
#include "data/json_values.h"
#include "data/text_files.h"
#include "infer/batch_inputs.h"
#include "infer/inference.h"
#include "text/encode_texts.h"

namespace octet {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{4} << 30;
constexpr int64_t kSeqStep = 8;  // few lengths, so that few functions are compiled

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

// Texts that are computed together: indices, and the size of their function.
struct TextGroup {
  std::vector<size_t> texts;
  BatchSize size;
};

std::vector<TextGroup> group_by_length(const std::vector<EncodedText>& texts, int64_t batch,
                                       int64_t max_tokens) {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // The longest first: a machine too small for them says so at once.
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t i) { return texts[i].tokens.ids.size(); });
  std::vector<TextGroup> groups;
  for (size_t first = 0; first < order.size(); first += static_cast<size_t>(batch)) {
    const size_t end = std::min(order.size(), first + static_cast<size_t>(batch));
    const int64_t longest = std::ssize(texts[order[first]].tokens.ids);
    const int64_t seq = ceil_div(longest, kSeqStep) * kSeqStep;
    groups.push_back(
        {.texts = {order.begin() + static_cast<int64_t>(first),
                   order.begin() + static_cast<int64_t>(end)},
         .size = {.batch = static_cast<int64_t>(end - first), .seq = std::min(seq, max_tokens)}});
  }
  return groups;
}

Batch batch_of(const TextGroup& group, const std::vector<EncodedText>& texts, int64_t n_types) {
  Batch batch{.batch = group.size.batch, .seq = group.size.seq};
  batch.add(tokens_input());
  batch.add(token_types_input(n_types));
  for (size_t row = 0; row < group.texts.size(); ++row) {
    const EncodedTexts& text = texts[group.texts[row]].tokens;
    const auto at = static_cast<int64_t>(row) * batch.seq;
    std::ranges::copy(text.ids, batch.ints("tokens").begin() + at);
    std::ranges::copy(text.types, batch.ints("token_types").begin() + at);
    batch.lengths.push_back(std::ssize(text.ids));
  }
  return batch;
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
  const int64_t most = spec.max_positions - model_def(spec.kind).first_position;
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
  const std::vector<EncodedText> encoded =
      encode_all(tokenizer, texts, max_tokens, options.threads);
  for (const EncodedText& text : encoded) {
    if (text.n_whole == 0) {
      throw Error(ErrorCode::invalid_argument,
                  "[embed] expected texts of a token or more, got an empty one");
    }
    result.n_tokens += std::ssize(text.tokens.ids);
    result.n_truncated += text.n_whole > max_tokens ? 1 : 0;
    result.longest = std::max(result.longest, text.n_whole);
  }
  const std::vector<TextGroup> groups = group_by_length(encoded, options.batch, max_tokens);
  std::set<FunctionKey> keys;
  for (const TextGroup& group : groups) keys.insert({function::logits, group.size});
  const std::vector<FunctionKey> functions(keys.rbegin(), keys.rend());
  const WeightReader weights(machine.files, features.weights, spec, features.nonfinite);
  Inference model(spec, precision_of(features.recipe, features, weights), functions, machine.device,
                  machine.catalogue);
  model.load(weights);
  int64_t n_done = 0;
  for (const TextGroup& group : groups) {
    BoundPlan& function = model.function(function::logits, group.size);
    upload(function, batch_of(group, encoded, spec.token_types));
    function.run();
    const std::vector<float> rows =
        model.read_rows(function, "features", 0, group.size.batch * group.size.seq);
    for (size_t row = 0; row < group.texts.size(); ++row) {
      const size_t text = group.texts[row], width = static_cast<size_t>(result.width);
      const size_t first = row * static_cast<size_t>(group.size.seq) * width;
      pool_text(std::span(rows).subspan(first, encoded[text].tokens.ids.size() * width), options,
                std::span(result.values).subspan(text * width, width));
    }
    n_done += group.size.batch;
    if (options.on_progress) options.on_progress(n_done, result.n);
  }
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
