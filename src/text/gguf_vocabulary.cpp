// The vocabulary in a GGUF file's header.
#include "base/gguf.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_files.h"
#include "text/word_pattern.h"

namespace octet {
namespace {

enum class TokenType : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4 };

class GgufReader {
 public:
  explicit GgufReader(const TokenizerFile& file)
      : path_(file.path),
        metadata_(file.bytes, "tokenizer", file.path, GgufHeader::Tensors::skipped) {
    parts_.name = file.path;
    parts_.usual = SpecialText::parse;
  }

  TokenizerParts read() {
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
    std::string_view pattern = kGpt2Words;
    if (name == "llama-bpe") {
      pattern = kCl100kWords;
    } else if (name == "qwen2") {
      pattern = kQwenWords;
    } else if (name == "smollm") {
      parts_.words.add(SplitCharacters{is_number});
    } else if (name != "gpt-2" && name != "mpt" && name != "olmo") {
      bad_tokenizer(path_, "GGUF pre-tokenizer '{}' is not supported", name);
    }
    parts_.whole_words_first = pattern == kCl100kWords;
    parts_.words.add(SplitMatches{octet::read_pattern(path_, pattern), {}});
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
    octet::add_token(path_, parts_.surfaces, id, bytes);
    if (type == TokenType::normal) {
      octet::add_token(path_, parts_.vocabulary, id, bytes);
      if (bytes.size() == 1) parts_.byte_ids[static_cast<unsigned char>(bytes[0])] = id;
    }
    if ((type != TokenType::control && type != TokenType::user_defined) || token.empty()) return;
    const bool is_control = type == TokenType::control;
    parts_.added.push_back(
        {.id = id, .content = is_control ? std::string(token) : bytes, .special = is_control});
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
    }
    parts_.silence_ends();
  }

  int32_t checked(uint32_t id) const {
    if (!parts_.surfaces.has(id)) bad_tokenizer(path_, "expected ids of tokens, got {}", id);
    return static_cast<int32_t>(id);
  }

  const std::string& path_;
  GgufHeader metadata_;
  ByteAlphabet alphabet_;
  TokenizerParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_gguf_vocabulary(const TokenizerFile& file) {
  return word_tokenizer(GgufReader(file).read());
}

}  // namespace octet
