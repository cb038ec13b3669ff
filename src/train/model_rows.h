// Rows for a model that was trained: what a run of it reads, of other files.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "data/dataset.h"
#include "infer/model_source.h"

namespace octet {

// A model as it is evaluated on rows: one of features, which no loss reads, gives embeddings where
// its kind has these.
ModelSpec with_loss(const ModelSpec& spec);

struct ModelRowsQuery {
  const ModelSource& source;  // with a tokenizer, where the model reads text
  std::vector<std::string> calib;
  std::vector<std::string> eval = {};  // may be empty
  int64_t seq = 1;                     // tokens a row
  int64_t stride = -1;                 // data.stride; below 0: the run's, or the default
};

// Of a model that writes no text, for the loss of with_loss(): pictures, labelled texts, pairs of
// texts, text with hidden tokens, or arrays, whichever the files are (train/row_data.h). Calib's
// rows are the dataset's for training, eval's those for validation. Of a run, its keys hold; of a
// model's folder, what it says of its pictures and classes. Throws as open_run_data() does, and
// Error{invalid_argument} for a model without a loss of its own.
Dataset open_model_rows(Files& files, const ModelRowsQuery& query, const Log& log);

}  // namespace octet
