// Texts about sources: what a model that translates writes, by the most probable token, by chance
// or by beam search, over caches of keys and values of the source and of the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "infer/beam_search.h"
#include "infer/generate.h"
#include "infer/model_source.h"
#include "infer/sampling.h"
#include "infer/text_model.h"
#include "text/tokenizer.h"

namespace octet {

struct TranslateOptions {
  TokenRules rules = {};
  BeamOptions beams = {.n_beams = 1};  // 1: no beam search
  Sampling sampling = {};              // without beam search
  int32_t start = 0;                   // that each text begins with
  bool cleans_spaces = false;          // clean_up_tokenization_spaces
};

struct Translation {
  std::vector<int32_t> tokens;  // an end token not among them
  Stop stop = Stop::length;
  float score = 0;  // of beam search
};

// One for each source, in their order. The model has n_sources() x n_beams entries, and a capacity
// of max_tokens. Throws Error{invalid_argument} for an empty source, and one longer than the model
// has room for.
std::vector<Translation> translate(TextModel& model, const ModelSpec& spec,
                                   const std::vector<std::vector<int32_t>>& sources,
                                   const TranslateOptions& options);

// Text of its tokens but special ones; those that the tokenizer lacks, where the model has more
// embeddings, are no text. With cleans_spaces no space stands before English punctuation and
// contractions, as in clean_up_tokenization() of transformers.
std::string text_of(const Tokenizer& tokenizer, const Translation& translation,
                    const TranslateOptions& options);

// The tokens of sources, each behind `prefix`; the spec's source_seq becomes what the longest
// needs. `place` names the file that they are lines of. Throws Error{invalid_argument} "[generate]
// PLACE:LINE: ..." for one that is longer than the model's positions.
std::vector<std::vector<int32_t>> encode_sources(const Tokenizer& tokenizer,
                                                 const std::vector<std::string>& texts,
                                                 const std::string& prefix,
                                                 const std::string& place, ModelSpec& spec);

// Decoding settings of a folder's generation_config.json, or where there is none its config.json:
// num_beams, length_penalty, early_stopping, decoder_start_token_id (of a generation_config.json
// without it bos_token_id, as in transformers), max_new_tokens, else max_length, which counts the
// start token, forced_eos_token_id, bad_words_ids of one token each; and
// clean_up_tokenization_spaces of a tokenizer_config.json beside the tokenizer, which transformers
// 5 passes over beside a tokenizer.json of BPE. Throws Error{bad_data} where it asks for what is
// not done here.
struct DecodingDefaults {
  BeamOptions beams = {.n_beams = 1};
  TokenRules rules = {};
  int32_t start = 0;
  std::optional<int64_t> max_tokens = {};
  bool cleans_spaces = false;
};
DecodingDefaults decoding_defaults(const Files& files, const ModelSource& source);

// New tokens at most: as asked, else as the files say, else 200 or as many as have positions.
// Throws Error{invalid_argument} where so many have none.
int64_t max_new_tokens(std::optional<int64_t> asked, const DecodingDefaults& defaults,
                       const ModelSpec& spec);

// What a caller says over the files' settings.
struct TranslationChoice {
  std::optional<int64_t> max_tokens = {};
  int64_t n_beams = 0;  // 0: the files'
  std::optional<double> length_penalty = {};
  std::optional<EarlyStopping> early_stopping = {};
  Sampling sampling = {};
};
// Settings of the files under the caller's; any of `ends` ends a text. Throws as
// decoding_defaults(), max_new_tokens() and check_sampling() do.
TranslateOptions translate_options(const Files& files, const ModelSource& source,
                                   std::vector<int32_t> ends, const TranslationChoice& choice);

// Warns of what these files say to models that write text by themselves, and would change it: the
// caller chooses tokens.
void tell_unused_decoding(const Files& files, const ModelSource& source, const Log& log);

}  // namespace octet
