#include "infer/add_tokens.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "base/utf8.h"
#include "data/text_files.h"
#include "formats/arrays.h"
#include "infer/tensor_streams.h"
#include "nn/model.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

constexpr const char *kAddedTokenizer = "tokenizer.json", *kAddedConfig = "tokenizer_config.json",
                     *kAddedDecoder = "added_tokens_decoder";
constexpr int64_t kMaxNewTokens = 1 << 16;
constexpr size_t kMaxTokenBytes = 4096;

AddedToken token_of_line(const std::string& line, bool is_json, const std::string& where) {
  AddedToken token;
  token.content = line;
  token.normalized = true;
  if (!is_json) return token;
  const Json json = parse_json(line, where);
  const JsonObject object(json, where);
  constexpr std::string_view kKnown[] = {"content", "special",     "lstrip",
                                         "rstrip",  "single_word", "normalized"};
  for (const auto& item : object.items()) {
    if (std::ranges::find(kKnown, item.key()) == std::end(kKnown))
      throw Error(ErrorCode::bad_data, "[add-tokens] {}: expected known keys, got '{}'", where,
                  item.key());
  }
  token.content = object.string("content");
  token.special = object.boolean_or("special", false);
  token.lstrip = object.boolean_or("lstrip", false);
  token.rstrip = object.boolean_or("rstrip", false);
  token.single_word = object.boolean_or("single_word", false);
  token.normalized = object.boolean_or("normalized", !token.special);
  return token;
}

// The pieces of the model's vocabulary as they are spelled, with their numbers; nothing where the
// file is no tokenizer.json.
std::optional<std::unordered_map<std::string, int64_t>> pieces_of(const OrderedJson& tokenizer) {
  const auto model = tokenizer.is_object() ? tokenizer.find("model") : tokenizer.end();
  if (model == tokenizer.end() || !model->is_object()) return std::nullopt;
  std::unordered_map<std::string, int64_t> pieces;
  const auto vocab = model->find("vocab");
  if (vocab == model->end()) return std::nullopt;
  if (vocab->is_object()) {
    for (const auto& piece : vocab->items()) {
      if (piece.value().is_number_integer())
        pieces.emplace(piece.key(), piece.value().get<int64_t>());
    }
  } else {
    for (const OrderedJson& piece : *vocab) {  // Unigram's: its score behind it
      const auto number = static_cast<int64_t>(pieces.size());
      if (piece.is_array() && !piece.empty() && piece[0].is_string())
        pieces.emplace(piece[0].get<std::string>(), number);
    }
  }
  return pieces;
}

OrderedJson entry_of(const AddedToken& token) {
  OrderedJson entry = OrderedJson::object();
  entry["content"] = token.content;
  entry["single_word"] = token.single_word;
  entry["lstrip"] = token.lstrip;
  entry["rstrip"] = token.rstrip;
  entry["normalized"] = token.normalized;
  entry["special"] = token.special;
  return entry;
}

// Rows of a tensor as they go by, [n_old, width], of which the first `n_mean` make the mean.
class RowsWithMean {
 public:
  RowsWithMean(Dtype dtype, int64_t width, const ByteSink& sink)
      : dtype_(dtype),
        row_(static_cast<size_t>(width) * static_cast<size_t>(bytes_of(dtype, 1))),
        sums_(static_cast<size_t>(width)),
        values_(static_cast<size_t>(width)),
        sink_(sink) {}

  struct Rows {
    int64_t n_mean = 0, n_new = 0;  // the new ones stand behind those of the mean
  };
  void take(std::span<const std::byte> bytes, const Rows& rows) {
    while (!bytes.empty()) {
      const size_t n = std::min(bytes.size(), row_.size() - n_held_);
      std::memcpy(row_.data() + n_held_, bytes.data(), n);
      n_held_ += n;
      bytes = bytes.subspan(n);
      if (n_held_ < row_.size()) return;
      n_held_ = 0;
      put_row(rows);
    }
  }
  // New rows behind all that there are.
  void finish(const Rows& rows) {
    CHECK(n_held_ == 0 && at_ >= rows.n_mean);
    for (; at_ < rows.n_mean + rows.n_new; ++at_) sink_(mean(rows.n_mean));
  }

 private:
  void put_row(const Rows& rows) {
    const bool is_new = at_ >= rows.n_mean && at_ < rows.n_mean + rows.n_new;
    if (at_ < rows.n_mean) {
      decode_values(dtype_, row_, values_);
      for (size_t i = 0; i < values_.size(); ++i) sums_[i] += static_cast<double>(values_[i]);
    }
    if (is_new) {
      sink_(mean(rows.n_mean));
    } else {
      sink_(row_);
    }
    ++at_;
  }

  std::vector<std::byte> mean(int64_t n) const {
    std::vector<float> values(sums_.size());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(sums_[i] / static_cast<double>(n));
    return encode_weights(values, dtype_);
  }

  Dtype dtype_;
  std::vector<std::byte> row_;
  size_t n_held_ = 0;
  int64_t at_ = 0;
  std::vector<double> sums_;
  std::vector<float> values_;
  const ByteSink& sink_;
};

}  // namespace

std::vector<AddedToken> read_new_tokens(const Files& files, const std::string& path) {
  const std::string all = files.read_stream(path);
  const std::string text(without_byte_order_mark(all));
  const bool is_json = path.ends_with(".jsonl");
  std::vector<AddedToken> tokens;
  std::set<std::string> seen;
  int64_t number = 0;
  for (size_t first = 0; first < text.size();) {
    const size_t end = std::min(text.find('\n', first), text.size());
    std::string line = text.substr(first, end - first);
    first = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const auto fail = [&](const std::string& expected, const std::string& got) {
      throw Error(ErrorCode::bad_data, "[add-tokens] {}: expected {}, got {}", where, expected,
                  got);
    };
    if (find_invalid_utf8(line) != std::string_view::npos) fail("UTF-8", "other bytes");
    AddedToken token = token_of_line(line, is_json, where);
    if (token.content.empty()) fail("a token", "an empty one");
    if (token.content.size() > kMaxTokenBytes)
      fail(fmt::format("at most {} bytes", kMaxTokenBytes), fmt::to_string(token.content.size()));
    if (!seen.insert(token.content).second)
      fail("each token once", fmt::format("'{}' again", token.content));
    tokens.push_back(std::move(token));
  }
  if (tokens.empty() || std::ssize(tokens) > kMaxNewTokens) {
    throw Error(ErrorCode::bad_data, "[add-tokens] {}: expected 1 to {} tokens, got {}", path,
                kMaxNewTokens, tokens.size());
  }
  return tokens;
}

AddedVocabulary::AddedVocabulary(const Files& files, const ModelSource& source,
                                 std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  const ModelDef& def = model_def(source.spec.kind);
  if (!def.writes_text || !def.reads_text || def.translates || def.sees_pictures) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --add-tokens: expected a decoder of text, got kind {}", def.name);
  }
  std::optional<std::unordered_map<std::string, int64_t>> pieces;
  if (source.tokenizer.ends_with(".json"))
    pieces = pieces_of(parse_ordered_json(files.read_text(source.tokenizer), source.tokenizer));
  if (!pieces) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --add-tokens: expected a model with a tokenizer.json, got {}",
                source.tokenizer.empty() ? "none" : "'" + source.tokenizer + "'");
  }
  const auto tokenizer = make_tokenizer(files, source.tokenizer);
  n_before_ = tokenizer->vocab_size();
  if (n_before_ > source.spec.vocab) {
    throw Error(ErrorCode::bad_data,
                "[convert] --add-tokens: expected at most the {} tokens of the model's vocabulary, "
                "got {} of '{}'",
                source.spec.vocab, n_before_, source.tokenizer);
  }
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto piece = pieces->find(tokens_[i].content);
    const auto special = tokenizer->special_id(tokens_[i].content);
    if (piece != pieces->end() || special) {
      throw Error(ErrorCode::bad_data,
                  "[convert] --add-tokens: expected tokens that '{}' has not, got '{}', token {}",
                  source.tokenizer, tokens_[i].content,
                  piece != pieces->end() ? piece->second : int64_t{*special});
    }
    tokens_[i].id = static_cast<int32_t>(n_before_ + static_cast<int64_t>(i));
  }
  vocab_ = std::max(source.spec.vocab, n_before_ + std::ssize(tokens_));
  const std::vector<ParameterSpec> parameters = model_parameters(source.spec);
  const std::string head(def.head), bias = head.substr(0, head.rfind('.')) + ".bias";
  for (const ParameterSpec& p : parameters) {
    const bool is_one = p.name == parameters.front().name || p.name == head || p.name == bias ||
                        p.name.ends_with(".embed_tokens_per_layer.weight");
    if (is_one && p.shape.front() == source.spec.vocab) names_.push_back(p.name);
  }
  CHECK(!names_.empty());
}

std::vector<TensorSource> AddedVocabulary::with_rows(std::vector<TensorSource> tensors) const {
  for (TensorSource& tensor : tensors) {
    if (std::ranges::find(names_, tensor.decl.name) == names_.end()) continue;
    const auto dtype = tensor.decl.dtype ? tensor.decl.dtype : native_dtype(tensor.decl.stored);
    if (!dtype || !is_high_precision(*dtype)) {
      throw Error(ErrorCode::bad_data,
                  "[convert] --add-tokens: '{}' must be F32, BF16 or F16, got {}: --dtype bf16 "
                  "writes it so",
                  tensor.decl.name, safe_dtype_name(tensor.decl.stored));
    }
    const int64_t n_old = tensor.decl.shape.front();
    const int64_t width = tensor.decl.shape.size() == 1 ? 1 : tensor.decl.shape.at(1);
    tensor.decl.shape.front() = std::max(n_old, vocab_);
    const RowsWithMean::Rows rows{.n_mean = n_before_, .n_new = std::ssize(tokens_)};
    tensor.emit = [emit = tensor.emit, dtype = *dtype, width, rows](const ByteSink& sink) {
      RowsWithMean all(dtype, width, sink);
      emit([&](std::span<const std::byte> bytes) { all.take(bytes, rows); });
      all.finish(rows);
    };
  }
  return tensors;
}

void AddedVocabulary::put_tokens(Files& files, const std::string& folder) const {
  const std::string path = join_path(folder, kAddedTokenizer);
  OrderedJson tokenizer = parse_ordered_json(files.read_text(path), path);
  expect_read(tokenizer, path);
  OrderedJson& added = tokenizer["added_tokens"];
  if (!added.is_array()) added = OrderedJson::array();
  for (const AddedToken& token : tokens_) {
    OrderedJson entry = {{"id", token.id}};
    entry.update(entry_of(token));
    added.push_back(entry);
  }
  write_atomically(files, path, tokenizer.dump(2) + "\n");
  const std::string config = join_path(folder, kAddedConfig);
  if (!files.exists(config)) return;
  OrderedJson json = read_tokenizer_config(files, config);
  const auto decoder = json.find(kAddedDecoder);
  if (decoder == json.end() || !decoder->is_object()) return;
  for (const AddedToken& token : tokens_) (*decoder)[fmt::to_string(token.id)] = entry_of(token);
  write_atomically(files, config, json.dump(2) + "\n");
}

}  // namespace octet
