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

namespace octet {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int32_t> bos()
      const = 0;  // stands before each document, where there is one
  virtual std::optional<int32_t> eos() const = 0;  // ends a document
  // Neither bos nor eos is added.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The bytes that one id stands for; "" for bos, eos and unknown. Error{bad_data} for ids outside
  // the vocabulary.
  virtual std::string token_bytes(int32_t id) const = 0;
  // decode(encode(text)) == text for valid UTF-8.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
};

// 256 tokens, one a byte; no bos, no eos; any bytes round-trip.
std::unique_ptr<Tokenizer> byte_tokenizer();

// llama2.c's tokenizer.bin: i32 longest token; then per token f32 score, i32 length, bytes. Ids 0,
// 1, 2 are <unk>, <s> (bos), </s> (eos); "<0xXX>" tokens stand for single bytes. Encoding: a space
// before non-empty text, characters of UTF-8 (or their bytes where the vocabulary lacks one), then
// the adjacent pair whose joined token has the highest score is merged, the leftmost of equals,
// until none can be. Source: sentencepiece's BPE as llama2.c runs it. Error{bad_data} names the
// file and the token.
std::unique_ptr<Tokenizer> llama2c_tokenizer(const Files& files, const std::string& path);

// `name` is "bytes" or the path of a tokenizer.bin.
std::unique_ptr<Tokenizer> make_tokenizer(const Files& files, const std::string& name);

}  // namespace octet
