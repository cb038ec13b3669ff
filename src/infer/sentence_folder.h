// Settings of a folder of sentence-transformers: how a text becomes one vector; and its files as
// they go from folder to run to export. Source: sentence-transformers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files.h"
#include "base/log.h"
#include "infer/model_source.h"
#include "nn/spec.h"

namespace octet {

struct SentenceFolder {
  bool is_said = false;  // whether there is a modules.json; what follows is a choice of ours if not
  Pooling pooling = Pooling::mean;
  bool normalizes = true;  // to a length of 1
  int64_t width = 0;       // of a vector, whose end is cut off last; 0: all
};

// A run has these files in one, sentence.json: an object of them by their names. Of both kinds of
// folder: modules.json, the modules' config.json, sentence_bert_config.json (older ones are named
// after other models) and config_sentence_transformers.json. Throws Error{bad_data}, "[embed] FILE:
// ...", for modules behind the pooling other than Normalize, a pooling that is neither mean nor
// cls, texts that are changed before they are tokenized (do_lower_case, a default prompt), and
// whatever else would give other vectors (transformer_task, model_args, padding_side, ...). With
// `pooling` modules.json is not read: vectors are normalized.
SentenceFolder read_sentence_folder(const Files& files, const std::string& folder,
                                    std::optional<Pooling> pooling = std::nullopt);

// The name of the Transformer's settings in a folder or a run: sentence_bert_config.json, or where
// that says nothing the first of those for other models that does.
inline constexpr const char* kSentenceSettings = "sentence_bert_config.json";
const char* sentence_settings(const Files& files, const std::string& folder);

// The tokens of the longest text that a folder wants whole, with the template's own, but no more
// than `most`: max_seq_length of these settings (roberta's may count all rows of its table), else
// model_max_length of tokenizer_config.json where that is less than `most`, as
// sentence-transformers has it; 0 without either. Throws Error{bad_data}.
int64_t max_tokens_of_folder(const Files& files, const std::string& folder, int64_t most);

// Writes sentence.json into a run's folder where its model's folder has a modules.json that
// read_sentence_folder() reads; of others a warning says what the run's exports lack.
inline constexpr const char* kSentenceNote = "sentence.json";
void keep_sentence_files(Files& files, const std::string& model, const std::string& run,
                         const Log& log);

// Writes a source's files into the folder of its export: those of a folder, with all that lies in
// the folders of its modules; of a run sentence.json's, or where it has none and trained embeddings
// those of its pooling, normalized. A run with a head for something else has none.
void put_sentence_files(Files& files, const ModelSource& source, const std::string& folder,
                        const Log& log);
// Removes them from an export of a run, with their folders.
void remove_sentence_files(Files& files, const std::string& folder);

}  // namespace octet
