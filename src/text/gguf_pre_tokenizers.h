// The word rules that tokenizer.ggml.pre of a GGUF file names, as llama.cpp reads them: each row
// was compared with its ids on texts whose merges cross every border of words.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace octet {

struct GgufPreTokenizer {
  enum class Words { gpt2, single_digits, llama3, qwen2, unnamed };
  std::string_view name;
  Words words;
  bool adds_bos = false;        // where add_bos_token is absent
  bool ignores_merges = false;  // of a word that is a token
  bool is_nfc = false;          // what the family's own files normalize to
};

// Null for a name that is not known. A file that names none is read as "default".
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
Json pre_tokenizer_json(const GgufPreTokenizer& row);

// The name for a byte-level BPE's tokenizer.json whose normalizer, pre-tokenizer and ignore_merges
// are those of a row; nothing where no row has them.
std::optional<std::string> gguf_pre_tokenizer_name(const Json& tokenizer);

}  // namespace octet
