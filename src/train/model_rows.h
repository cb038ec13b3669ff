// Rows for a model that was trained: what a run of it reads, of other files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "data/dataset.h"
#include "infer/model_source.h"

namespace octet {

// A model as it is evaluated on rows: one of features, which no loss reads, gives embeddings where
// its kind has these, pooled as its folder says (infer/sentence_folder.h).
ModelSpec with_loss(const Files& files, const ModelSource& source);

// The model's own loss; the rows of a sample tell how many negatives it has.
std::vector<WeightedLoss> row_losses(const ModelSpec& spec, int64_t rows_per_sample);

struct ModelRowsQuery {
  const ModelSource& source;  // with a tokenizer, where the model reads text
  std::vector<std::string> calib;
  std::vector<std::string> eval = {};  // may be empty
  int64_t seq = 1;                     // tokens a row
  int64_t stride = -1;                 // data.stride; below 0: the run's, or the default
  bool reads_negatives = true;         // of pairs of texts, where the files have some
};

// Rows of a model that writes no text, for the loss of with_loss(): pictures, labelled texts, pairs
// of texts, text with hidden tokens, or arrays, whichever the files are (train/row_data.h). Calib's
// rows are the dataset's for training, eval's those for validation. Of a run, its keys hold; of a
// model's folder, what it says of its pictures and classes. Throws as open_run_data() does, and
// Error{invalid_argument} for a model without a loss of its own.
Dataset open_model_rows(Files& files, const ModelRowsQuery& query, const Log& log);

// The end of its training data that a run keeps for validation, in rows of `seq`. Throws
// Error{invalid_argument} where it keeps none.
std::shared_ptr<const RowSource> held_out_rows(Files& files, const ModelSource& run, int64_t seq,
                                               const Log& log);

}  // namespace octet
