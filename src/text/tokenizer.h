// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "text/text_template.h"
#include "text/word_cache.h"

namespace octet {

// Reading of a special token's text, such as "<|endoftext|>", within a text.
enum class SpecialText {
  as_usual,  // parse for a tokenizer.json, plain for the other kinds
  parse,     // the special token
  plain,     // tokens of its letters
};

struct EncodeTextOptions {
  SpecialText special = SpecialText::as_usual;
  WordCache* words = nullptr;  // this thread's, for this tokenizer
};

// A token, and what of a text it stands for: bytes [begin, end).
struct TokenSpan {
  int32_t id = 0;
  int64_t begin = 0, end = 0;
  bool operator==(const TokenSpan&) const = default;
};

// Immutable; may be used from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;  // the highest id, plus 1
  // Stands before each document, and ends it, where there is one.
  virtual std::optional<int32_t> bos() const { return std::nullopt; }
  virtual std::optional<int32_t> eos() const { return std::nullopt; }
  // Tokens that the tokenizer's file puts around a text.
  virtual std::vector<int32_t> prefix() const { return {}; }
  virtual std::vector<int32_t> suffix() const { return {}; }
  // Template around one text and around two: prefix and suffix with type 0, and no pair, where the
  // tokenizer's file says no more.
  virtual TextTemplate text_template() const;
  virtual std::vector<int32_t> special_ids() const { return {}; }  // those that no text is made of
  // Token for text that the vocabulary lacks.
  virtual std::optional<int32_t> unknown() const { return std::nullopt; }
  // The special or added token with this text.
  virtual std::optional<int32_t> special_id(std::string_view text) const { return std::nullopt; }

  // Appends; neither prefix nor suffix, bos nor eos is added. Bytes that are no UTF-8 go through
  // where the vocabulary has bytes. Throws Error{bad_data} for text that the tokenizer cannot read.
  virtual void encode(std::string_view text, const EncodeTextOptions& options,
                      std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode(std::string_view text, const EncodeTextOptions& options = {}) const {
    std::vector<int32_t> ids;
    encode(text, options, ids);
    return ids;
  }

  // The same of a text in the language that is translated to, where that has pieces of its own.
  virtual void encode_target(std::string_view text, const EncodeTextOptions& options,
                             std::vector<int32_t>& ids) const {
    encode(text, options, ids);
  }

  // The ids that encode() gives, with their places in the text: of a token of characters that the
  // normalizer maps each by itself from the first of them to the last; of tokens whose spelling is
  // not the word's, all of the word. Throws Error{invalid_argument} where such a tokenizer cannot
  // say, Error{bad_data} of a text whose characters the normalizer joins or reorders, or whose
  // words are not parts of it.
  virtual std::vector<TokenSpan> encode_spans(std::string_view text) const;

  // The bytes that one id stands for; "" for bos, eos and unknown. Error{bad_data} for ids outside
  // the vocabulary.
  virtual std::string token_bytes(int32_t id) const = 0;
  // The text of ids, special tokens included where encode() makes them of text. Equals the text
  // that was encoded; or that text normalized, where the tokenizer normalizes.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
};

// `ids` without what the tokenizer's file puts around a text.
std::span<const int32_t> without_ends(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// 256 tokens, one a byte; no bos, no eos; any bytes round-trip.
std::unique_ptr<Tokenizer> byte_tokenizer();

struct TokenizerOptions {
  // Of words, for tiktoken's ranks and a vocab.json: a regular expression, or gpt2, cl100k, llama3,
  // qwen. Refused beside other files, which say it themselves.
  std::string pattern;
};

// `path` is "bytes", or a file or model folder as find_tokenizer() takes it. docs/tokenizers.md
// lists the kinds; a file's content says which it is. Throws Error{bad_data}, "[tokenizer] PATH:
// ...", naming what is wrong or not supported.
std::unique_ptr<Tokenizer> make_tokenizer(const Files& files, const std::string& path,
                                          const TokenizerOptions& options = {});

// The tokenizer's file in a model folder: tokenizer.json, spiece.model (T5's), tokenizer.model,
// vocab.json, encoder.json, *.tiktoken, tokenizer.bin, vocab.txt or *.gguf, the first of these that
// is there.
std::optional<std::string> find_tokenizer(const Files& files, const std::string& folder);

}  // namespace octet
