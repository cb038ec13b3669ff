// How right a classifier is on rows with labels, whatever else a row holds.
#pragma once

#include <cstdint>
#include <vector>

#include "data/rows.h"
#include "infer/inference.h"
#include "infer/model_source.h"

namespace octet {

// Scores of each row, in order.
struct ClassScores {
  std::vector<double> log_likelihoods;     // of the label, nats; in double of the model's logits
  std::vector<double> right, right5;       // 1 or 0: the label is the first, among the first 5
  std::vector<int32_t> labels, predicted;  // predicted: the first of the largest logits
};

// A model whose output is "classes", on rows that bring its inputs and "labels" below its number of
// classes; `batch` of them at a time. Classes of equal logits count as top_k() has it.
ClassScores score_classes(const ModelSource& source, const EvalRows& rows, int64_t batch,
                          const TextMachine& machine, const OnProgress& on_progress = {});

}  // namespace octet
