// The vocabulary in a GGUF file: key-value pairs behind a header, little-endian. Source: the GGUF
// specification, versions 2 and 3.
#include <cstring>
#include <map>

#include "text/byte_alphabet.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

enum class ValueType : uint32_t { u32 = 4, i32 = 5, boolean = 7, string = 8, array = 9 };
constexpr size_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // by type; 0: see its length
enum class TokenType : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4 };

struct Value {
  uint32_t type = 0;  // of an array: of its elements
  bool is_array = false;
  uint64_t n = 1;          // elements
  std::string_view bytes;  // of all elements
};

class Cursor {
 public:
  Cursor(std::string_view bytes, const std::string& path) : rest_(bytes), path_(path) {}

  std::string_view take(uint64_t n) {
    if (n > rest_.size()) bad_tokenizer(path_, "expected a whole GGUF file, got its start");
    const std::string_view bytes = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return bytes;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view string() { return take(number<uint64_t>()); }

  Value value() {
    Value value;
    value.type = number<uint32_t>();
    if (value.type == static_cast<uint32_t>(ValueType::array)) {
      value.is_array = true;
      value.type = number<uint32_t>();
      value.n = number<uint64_t>();
    }
    const std::string_view before = rest_;
    if (value.type == static_cast<uint32_t>(ValueType::string)) {
      for (uint64_t i = 0; i < value.n; ++i) string();
    } else if (value.type < std::size(kWidths) && kWidths[value.type] > 0) {
      if (value.n > rest_.size()) take(value.n);
      take(value.n * kWidths[value.type]);
    } else {
      bad_tokenizer(path_, "expected values of a known type, got type {}", value.type);
    }
    value.bytes = before.substr(0, before.size() - rest_.size());
    return value;
  }

 private:
  std::string_view rest_;
  const std::string& path_;
};

class Metadata {
 public:
  Metadata(std::string_view bytes, const std::string& path) : path_(path) {
    Cursor cursor(bytes, path);
    cursor.take(4);
    const auto version = cursor.number<uint32_t>();
    if (version < 2 || version > 3) {
      bad_tokenizer(path, "expected GGUF version 2 or 3, got {}", version);
    }
    cursor.number<uint64_t>();  // tensors
    const auto n = cursor.number<uint64_t>();
    for (uint64_t i = 0; i < n; ++i) {
      std::string key(cursor.string());
      values_[std::move(key)] = cursor.value();
    }
  }

  bool has(const std::string& key) const { return values_.contains(key); }
  std::vector<std::string_view> strings(const std::string& key) const {
    const Value& value = find(key, ValueType::string, true);
    Cursor cursor(value.bytes, path_);
    std::vector<std::string_view> strings;
    for (uint64_t i = 0; i < value.n; ++i) strings.push_back(cursor.string());
    return strings;
  }
  std::string string(const std::string& key) const {
    return std::string(Cursor(find(key, ValueType::string, false).bytes, path_).string());
  }
  std::vector<int32_t> integers(const std::string& key) const {
    const Value& value = find(key, ValueType::i32, true);
    std::vector<int32_t> integers(value.n);
    if (value.n > 0) std::memcpy(integers.data(), value.bytes.data(), value.bytes.size());
    return integers;
  }
  bool flag(const std::string& key) const {
    return find(key, ValueType::boolean, false).bytes.front() != '\0';
  }
  uint32_t number(const std::string& key) const {
    return Cursor(find(key, ValueType::u32, false).bytes, path_).number<uint32_t>();
  }

 private:
  const Value& find(const std::string& key, ValueType type, bool is_array) const {
    const auto it = values_.find(key);
    if (it == values_.end() || it->second.type != static_cast<uint32_t>(type) ||
        it->second.is_array != is_array) {
      bad_tokenizer(path_, "expected the key '{}' with its usual type", key);
    }
    return it->second;
  }

  const std::string& path_;
  std::map<std::string, Value> values_;
};

class GgufReader {
 public:
  explicit GgufReader(const TokenizerFile& file)
      : path_(file.path), metadata_(file.bytes, file.path) {
    parts_.name = file.path;
    parts_.usual = SpecialText::parse;
  }

  BpeParts read() {
    const std::string model = metadata_.string("tokenizer.ggml.model");
    if (model != "gpt2") bad_tokenizer(path_, "GGUF tokenizer '{}' is not supported", model);
    read_pattern();
    read_tokens();
    read_merges();
    read_ends();
    return std::move(parts_);
  }

 private:
  void read_pattern() {
    const std::string key = "tokenizer.ggml.pre";
    const std::string name = metadata_.has(key) ? metadata_.string(key) : "gpt-2";
    WordPattern pattern = WordPattern::gpt2;
    if (name == "llama-bpe") {
      pattern = WordPattern::cl100k;
    } else if (name == "qwen2") {
      pattern = WordPattern::qwen;
    } else if (name != "gpt-2" && name != "mpt" && name != "olmo") {
      bad_tokenizer(path_, "GGUF pre-tokenizer '{}' is not supported", name);
    }
    parts_.whole_words_first = pattern == WordPattern::cl100k;
    parts_.words.add(SplitWords{std::make_shared<const WordScanner>(pattern)});
  }

  void read_tokens() {
    const auto tokens = metadata_.strings("tokenizer.ggml.tokens");
    const auto types = metadata_.integers("tokenizer.ggml.token_type");
    if (types.size() != tokens.size()) {
      bad_tokenizer(path_, "expected a type for each token, got {} for {}", types.size(),
                    tokens.size());
    }
    for (size_t i = 0; i < tokens.size(); ++i) add_token(i, tokens[i], TokenType{types[i]});
  }

  void add_token(size_t i, std::string_view token, TokenType type) {
    const auto id = static_cast<int32_t>(i);
    const std::string bytes = alphabet_.bytes_of(token).value_or(std::string(token));
    try {
      parts_.surfaces.add(id, bytes);
      if (type == TokenType::normal) parts_.vocabulary.add(id, bytes);
    } catch (const Error& error) {
      bad_tokenizer(path_, "{}", error.what());
    }
    if (type == TokenType::normal && bytes.size() == 1) {
      parts_.byte_ids[static_cast<unsigned char>(bytes[0])] = id;
    }
    if ((type != TokenType::control && type != TokenType::user_defined) || token.empty()) return;
    AddedToken added;
    added.id = id;
    added.content = type == TokenType::control ? std::string(token) : bytes;
    added.special = type == TokenType::control;
    parts_.added.push_back(added);
  }

  void read_merges() {
    uint32_t rank = 0;
    for (const std::string_view merge : metadata_.strings("tokenizer.ggml.merges")) {
      const size_t space = merge.find(' ');
      const auto left = alphabet_.bytes_of(merge.substr(0, space));
      const auto right = alphabet_.bytes_of(space == merge.npos ? "" : merge.substr(space + 1));
      const bool is_pair = left && right && !left->empty() && !right->empty();
      const int32_t a = is_pair ? parts_.vocabulary.find(*left) : -1;
      const int32_t b = is_pair ? parts_.vocabulary.find(*right) : -1;
      const int32_t merged = is_pair ? parts_.vocabulary.find(*left + *right) : -1;
      if (a < 0 || b < 0 || merged < 0 || !parts_.merges.add(a, b, rank, merged)) {
        bad_tokenizer(path_, "merge {}: expected two tokens, and each merge once", rank);
      }
      ++rank;
    }
  }

  void read_ends() {
    const std::string bos = "tokenizer.ggml.bos_token_id", eos = "tokenizer.ggml.eos_token_id";
    if (metadata_.has(eos)) parts_.eos = checked(metadata_.number(eos));
    const bool adds_bos = metadata_.has("tokenizer.ggml.add_bos_token") && metadata_.has(bos);
    if (adds_bos && metadata_.flag("tokenizer.ggml.add_bos_token")) {
      parts_.bos = checked(metadata_.number(bos));
      parts_.prefix = {*parts_.bos};
      parts_.silent.push_back(*parts_.bos);
    }
    if (parts_.eos) parts_.silent.push_back(*parts_.eos);
  }

  int32_t checked(uint32_t id) const {
    if (!parts_.surfaces.has(id)) bad_tokenizer(path_, "expected ids of tokens, got {}", id);
    return static_cast<int32_t>(id);
  }

  const std::string& path_;
  Metadata metadata_;
  ByteAlphabet alphabet_;
  BpeParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_gguf_vocabulary(const TokenizerFile& file) {
  return bpe_tokenizer(GgufReader(file).read());
}

}  // namespace octet
