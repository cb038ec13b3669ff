// Texts as vectors: an encoder's features of each text's tokens, pooled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "infer/inference.h"
#include "infer/model_source.h"
#include "text/encode_texts.h"

namespace octet {

struct EmbedOptions {
  Pooling pooling = Pooling::mean;
  bool normalizes = true;
  int64_t max_tokens = 0;  // of a text, with the template's own; 0: what the model takes
  CutSide cut = CutSide::end;
  int64_t width = 0;   // of a vector, whose end is cut off last; 0: all
  int64_t batch = 32;  // texts at a time
  int threads = 0;     // that tokenize; 0: one per core that this process may use
  OnProgress on_progress = {};
};

struct Embeddings {
  int64_t n = 0, width = 0;
  std::vector<float> values = {};  // [n, width]
  int64_t n_tokens = 0;            // with the template's own
  int64_t n_truncated = 0;         // texts that were too long
  int64_t longest = 0;             // tokens that the longest text had
  int64_t n_padded_inside = 0;     // texts with the padding's token of a model that counts from it
};

// "3 of 9 texts hold ...": what a model whose positions begin behind its padding's does with that
// token inside of a text.
std::string inner_padding_text(int64_t n, int64_t n_all, std::string_view unit,
                               const ModelSpec& spec);

// Row i is of text i:
//   mean   the mean over the text's tokens, those of the template among them
//   cls    the first token's features
// and, where it normalizes, x / max(|x|, 1e-12), before its end is cut off. Sums over tokens and
// |x| are in double. An empty text is the template's tokens alone; it must have one at least. Texts
// of like length are computed together, padded to the longest of `batch` and on to a multiple of 8;
// tokens of padding are seen by no other. Deterministic. Throws Error{invalid_argument}, "[embed]
// ...", where the model gives no features of tokens, and where max_tokens is more than the model
// takes.
Embeddings embed_texts(const ModelSource& source, const Tokenizer& tokenizer,
                       const std::vector<std::string>& texts, const EmbedOptions& options,
                       const TextMachine& machine);

// The same for texts that come in many calls: the model is read once. Texts are padded to one of a
// few lengths, which changes the order of some sums and so the last bits. Throws as embed_texts().
class Embedder {
 public:
  // The tokenizer and what the machine refers to outlive it.
  Embedder(const ModelSource& source, const Tokenizer& tokenizer, const EmbedOptions& options,
           const TextMachine& machine);
  ~Embedder();

  Embeddings embed(const std::vector<std::string>& texts);  // by one thread at a time
  int64_t max_tokens() const;                               // of a text

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The texts of a file, a line each, or of JSON values that are texts or objects with "text"
// (.jsonl, or a first line that is one). Packed files are unpacked. An empty line is an empty text,
// in JSON nothing. Throws Error{bad_data}, "[embed] PATH:LINE: ...".
std::vector<std::string> read_texts(const Files& files, const std::string& path);

}  // namespace octet
