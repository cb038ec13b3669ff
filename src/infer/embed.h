// Texts as vectors: an encoder's features of each text's tokens, pooled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/named_enum.h"
#include "infer/inference.h"
#include "infer/model_source.h"
#include "text/tokenizer.h"

namespace octet {

// How the features of a text's tokens become one row: their mean, or the first one's.
enum class Pooling : uint8_t { mean, cls };
constexpr auto value_names(Pooling) {
  return name_list("mean", "cls");
}

// What a folder of sentence-transformers says of how a text becomes one vector.
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

struct EmbedOptions {
  Pooling pooling = Pooling::mean;
  bool normalizes = true;
  int64_t max_tokens = 0;  // of a text, with the template's own; 0: what the model takes
  int64_t batch = 32;      // texts at a time
  int threads = 0;         // that tokenize; 0: one per core that this process may use
  OnProgress on_progress = {};
};

struct Embeddings {
  int64_t n = 0, width = 0;
  std::vector<float> values = {};  // [n, width]
  int64_t n_tokens = 0;            // with the template's own
  int64_t n_truncated = 0;         // texts that were too long and lost their ends
  int64_t longest = 0;             // tokens that the longest text had
};

// Row i is of text i:
//   mean   the mean over the text's tokens, those of the template among them
//   cls    the first token's features
// and, where it normalizes, x / max(|x|, 1e-12). Sums over tokens and |x| are in double. An empty
// text is the template's tokens alone; it must have one at least.
// Texts of like length are computed together, padded to the longest of `batch` and on to a multiple
// of 8; tokens of padding are seen by no other. Deterministic.
// Throws Error{invalid_argument}, "[embed] ...", where the model gives no features of tokens, and
// where max_tokens is more than the model takes.
Embeddings embed_texts(const ModelSource& source, const Tokenizer& tokenizer,
                       const std::vector<std::string>& texts, const EmbedOptions& options,
                       const TextMachine& machine);

// The texts of a file, a line each, or of JSON values that are texts or objects with "text"
// (.jsonl, or a first line that is one). Packed files are unpacked. An empty line is an empty text,
// in JSON nothing. Throws Error{bad_data}, "[embed] PATH:LINE: ...".
std::vector<std::string> read_texts(const Files& files, const std::string& path);

}  // namespace octet
