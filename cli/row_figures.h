// Evaluation of rows that are no text of a decoder: by a model's classes, or its loss.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/common.h"
#include "infer/evaluate.h"
#include "infer/inference.h"

namespace octet {

// Figures of each sample (row, pair) in order: of classes "cross_entropy" (nats), "acc" and, of
// more than five, "top5"; else the metrics of the loss of the model's own.
struct RowFigures {
  std::vector<SampleMetric> all;
  // Figures of all samples at once: of two classes "f1", of class 1; of classes "matthews"; of
  // numbers "spearman", NaN where it is not defined.
  Figures whole = {};
};

// `batch` rows at a time, with the source's recipe.
RowFigures row_figures(const ModelSource& source, const EvalRows& rows, int64_t batch,
                       const TextMachine& machine);

// Tokens a row of a model that writes no text: the model's, of texts at most 512; 1 of pictures.
// Throws Error{invalid_argument} where the model reads text, of which the files are no arrays, and
// no tokenizer is known.
int64_t encoder_row_length(const ModelSource& source, int64_t wanted,
                           const std::vector<std::string>& files);

// octet eval --data of such a model, a row a recipe. `files`: of a run its own validation data
// where none is named.
struct EvalRowsCall {
  std::vector<std::string> files;
  int64_t limit = 0, seq = 0;            // limit: rows; 0: all
  int64_t batch = 0, default_batch = 8;  // rows; 0: the default's, and on to a whole sample
  int64_t stride = -1;                   // of spans; below 0: the run's, or the default
};
void run_eval_rows(const EvalRowsCall& call, const std::vector<ModelSource>& sources,
                   const GlobalOptions& options);

}  // namespace octet
