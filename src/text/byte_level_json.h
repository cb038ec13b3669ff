// tokenizer.json of a byte-level BPE, as the tokenizers package reads it.
#pragma once

#include "base/json.h"

namespace octet {

// The step of a pre-tokenizer or decoder that writes bytes as characters (text/byte_alphabet.h);
// by_words: it parts GPT-2's words first.
Json byte_level_step(bool by_words);

struct ByteLevelBpe {
  Json vocab;  // ids by token
  Json merges = Json::array();
  Json added_tokens = Json::array();
  Json normalizer = {}, post_processor = {};  // null: none
  Json pre_tokenizer = byte_level_step(true);
  bool ignore_merges = false;  // of a word that is a token
};
Json byte_level_json(ByteLevelBpe bpe);

}  // namespace octet
