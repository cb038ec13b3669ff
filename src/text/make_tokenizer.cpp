#include <algorithm>

#include "base/error.h"
#include "base/gguf.h"
#include "base/lfs_pointer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

bool looks_like_json(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != bytes.npos && bytes[first] == '{';
}

// llama2.c's file: a small positive length, and a first token whose length the file can hold.
bool looks_like_llama2c(std::string_view bytes) {
  return bytes.size() >= 4 && bytes[3] == '\0' && bytes[2] == '\0';
}

void expect_no_pattern(const std::string& path, const TokenizerOptions& options) {
  if (options.pattern.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "--pattern: expected it with tiktoken's ranks or a vocab.json, got '{}', which says "
              "its words itself",
              path);
}

std::unique_ptr<Tokenizer> read_json(const TokenizerFile& file, const TokenizerOptions& options) {
  Json json = parse_json(file.bytes, file.path);
  if (json.contains("model") && json.at("model").is_object()) {
    expect_no_pattern(file.path, options);
    return read_tokenizer_json(file, with_config(file, std::move(json)));
  }
  const bool is_vocabulary =
      !json.empty() &&
      std::all_of(json.begin(), json.end(), [](const Json& id) { return id.is_number_integer(); });
  if (!is_vocabulary) {
    bad_tokenizer(file.path, "expected a tokenizer.json or a vocab.json, got other JSON");
  }
  if (is_marian_vocabulary(file)) {
    expect_no_pattern(file.path, options);
    return read_marian_tokenizer(file, json);
  }
  return read_vocab_and_merges(file, json, options);
}

}  // namespace

void add_token(const std::string& path, Vocabulary& vocabulary, int64_t id,
               std::string_view token) {
  try {
    vocabulary.add(id, token);
  } catch (const Error& error) {
    bad_tokenizer(path, "{}", error.what());
  }
}

std::vector<TokenSpan> Tokenizer::encode_spans(std::string_view) const {
  throw Error(ErrorCode::invalid_argument,
              "[tokenizer] expected one that says where in a text its tokens stand, got another "
              "kind (tokenizer.json and vocab.txt do)");
}

TextTemplate Tokenizer::text_template() const {
  TextTemplate around;
  for (const int32_t id : prefix()) around.single.push_back({.id = id});
  around.single.push_back({.kind = TemplatePart::Kind::first_text});
  for (const int32_t id : suffix()) around.single.push_back({.id = id});
  return around;
}

std::span<const int32_t> without_ends(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const std::vector<int32_t> prefix = tokenizer.prefix(), suffix = tokenizer.suffix();
  if (ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin())) {
    ids = ids.subspan(prefix.size());
  }
  if (ids.size() >= suffix.size() && std::equal(suffix.rbegin(), suffix.rend(), ids.rbegin())) {
    ids = ids.first(ids.size() - suffix.size());
  }
  return ids;
}

std::optional<std::string> find_tokenizer(const Files& files, const std::string& folder) {
  std::vector<std::string> names = {"tokenizer.json", "spiece.model", "tokenizer.model",
                                    "vocab.json", "encoder.json"};
  std::vector<std::string> others;
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.name.ends_with(".tiktoken")) names.push_back(entry.name);
    if (is_gguf_name(entry.name)) others.push_back(entry.name);
  }
  names.push_back("tokenizer.bin");
  names.push_back("vocab.txt");
  if (others.size() == 1) names.push_back(others.front());
  for (const std::string& name : names) {
    std::string path = join_path(folder, name);
    if (files.exists(path)) return path;
  }
  return std::nullopt;
}

std::unique_ptr<Tokenizer> make_tokenizer(const Files& files, const std::string& path,
                                          const TokenizerOptions& options) {
  if (path == "bytes") {
    expect_no_pattern(path, options);
    return byte_tokenizer();
  }
  if (files.exists(path) && files.is_directory(path)) {
    const auto found = find_tokenizer(files, path);
    if (found) return make_tokenizer(files, *found, options);
    bad_tokenizer(path,
                  "expected tokenizer.json, spiece.model, tokenizer.model, vocab.json, "
                  "encoder.json, *.tiktoken, "
                  "tokenizer.bin or vocab.txt in the folder, got none");
  }
  const bool is_a_path = path.find_first_of("./") != path.npos;
  if (!is_a_path && !files.exists(path)) {
    throw Error(ErrorCode::invalid_argument,
                "[tokenizer] expected 'bytes', a tokenizer's file or a model folder, got '{}'",
                path);
  }
  const bool has_header = is_gguf_name(path);  // before weights of any size
  const TokenizerFile file{files, path,
                           has_header ? read_gguf_header(files, path) : files.read_text(path)};
  if (file.bytes.starts_with(kLfsPointer)) {
    bad_tokenizer(path, "expected a tokenizer, got {}", kLfsAdvice);
  }
  if (looks_like_json(file.bytes)) return read_json(file, options);
  const bool is_gguf = file.bytes.starts_with("GGUF");
  if (!is_gguf && is_rank_file(file.bytes)) return read_rank_file(file, options);
  expect_no_pattern(path, options);
  if (is_gguf) return read_gguf_vocabulary(file);
  if (is_sentencepiece_model(file.bytes)) return read_sentencepiece_model(file);
  if (is_piece_list(file.bytes)) return read_piece_list(file);
  if (looks_like_llama2c(file.bytes)) return read_llama2c_tokenizer(file);
  if (file.bytes.starts_with('\x0A')) return read_sentencepiece_model(file);
  bad_tokenizer(path,
                "expected a tokenizer.json, a SentencePiece model, tiktoken ranks, a vocab.json, "
                "a vocab.txt or a tokenizer.bin, got other data");
}

namespace {

class ByteTokenizer : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 256; }
  void encode(std::string_view text, const EncodeTextOptions&,
              std::vector<int32_t>& ids) const override {
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  }
  std::string token_bytes(int32_t id) const override {
    if (id < 0 || id > 255) {
      throw Error(ErrorCode::bad_data, "[tokenizer] bytes: expected ids from 0 to 255, got {}", id);
    }
    return std::string(1, static_cast<char>(id));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id);
    return text;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace octet
