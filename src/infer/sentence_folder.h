// What a folder of sentence-transformers says of how a text becomes one vector.
#pragma once

#include <cstdint>
#include <string>

#include "base/files.h"
#include "base/named_enum.h"

namespace octet {

// How the features of a text's tokens become one row: their mean, or the first one's.
enum class Pooling : uint8_t { mean, cls };
constexpr auto value_names(Pooling) {
  return name_list("mean", "cls");
}

struct SentenceFolder {
  bool is_said = false;  // whether there is a modules.json; what follows is a choice of ours if not
  Pooling pooling = Pooling::mean;
  bool normalizes = true;  // to a length of 1
};

// modules.json, the pooling's config.json, and sentence_bert_config.json. Source:
// sentence-transformers. Throws Error{bad_data}, "[embed] FILE: ...", for modules behind the
// pooling other than Normalize, a pooling that is neither of the two, and texts that are changed
// before they are tokenized (do_lower_case, a default prompt).
SentenceFolder read_sentence_folder(const Files& files, const std::string& folder);

// The tokens of the longest text that a folder wants whole, with the template's own: max_seq_length
// of sentence_bert_config.json, else model_max_length of tokenizer_config.json where that is less
// than `most`, as sentence-transformers has it; 0 without either. Throws Error{bad_data}.
int64_t max_tokens_of_folder(const Files& files, const std::string& folder, int64_t most);

}  // namespace octet
