#include "infer/class_scores.h"

#include <algorithm>
#include <cmath>

#include "infer/batch_inputs.h"
#include "infer/inference.h"
#include "infer/metrics.h"

namespace octet {
namespace {

// log(exp(logits[label]) / sum exp(logits))
double log_likelihood(std::span<const float> logits, int32_t label) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return static_cast<double>(logits[static_cast<size_t>(label)]) - largest - std::log(sum);
}

}  // namespace

ClassScores score_classes(const ModelSource& source, const EvalRows& rows, int64_t batch,
                          const TextMachine& machine, const OnProgress& on_progress) {
  Batch part = rows.at(0, batch);
  const FunctionKey key{function::logits, {.batch = batch, .seq = part.seq}};
  Inference model(source, std::span(&key, 1), machine);
  BoundPlan& function = model.function(key.name, key.size);
  const auto n_classes = static_cast<size_t>(source.spec.classes);
  const int64_t first_five = std::min<int64_t>(5, source.spec.classes);
  ClassScores scores;
  for (int64_t first = 0; first < rows.n_rows(); first += batch) {
    if (first > 0) part = rows.at(first, batch);
    upload(function, part);
    function.run();
    const int64_t n = std::min(batch, rows.n_rows() - first);
    const std::vector<float> logits = model.read_rows(function, "classes", 0, n);
    const std::vector<int32_t>& labels = part.ints("labels");
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      if (labels[i] == kIgnoredLabel) continue;
      const auto row = std::span(logits).subspan(i * n_classes, n_classes);
      const auto label = std::span(labels).subspan(i, 1);
      scores.log_likelihoods.push_back(log_likelihood(row, label[0]));
      scores.labels.push_back(label[0]);
      scores.predicted.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
      scores.right.push_back(top_k(row, label, 1).share());
      scores.right5.push_back(top_k(row, label, first_five).share());
    }
    if (on_progress) on_progress(first + n, rows.n_rows());
  }
  return scores;
}

}  // namespace octet
