// The vocabulary of a GGUF file as Hugging Face's files: what a folder made from it holds, and what
// reads the file itself goes through. Every tokenizer.* key is read, neutral, or refused by name.
// Sources: the GGUF specification; llama.cpp (pre-tokenizers by name, and which of them begin texts
// with BOS where no key says so); tokenizer.json as the tokenizers package reads it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/gguf.h"
#include "base/json.h"

namespace octet {

// Throw Error{bad_data}, "[OP] PATH: expected ...", where the metadata name another kind of
// vocabulary than GPT-2's or SentencePiece's BPE, words or keys that are not known, or ids of no
// token.
Json gguf_tokenizer_json(const GgufHeader& header);
Json gguf_tokenizer_config(const GgufHeader& header);
Json gguf_generation_config(const GgufHeader& header);
bool is_read_sampling_key(std::string_view key);  // of general.sampling.*, by the last one

// tokenizer.ggml.token_type
enum class GgufTokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};
// Keys of ids with their names in tokenizer_config.json; nullptr: in none.
struct GgufSpecialToken {
  const char* key;
  const char* name;
};
std::span<const GgufSpecialToken> gguf_special_tokens();

std::vector<std::string_view> neutral_vocabulary_keys();

}  // namespace octet
