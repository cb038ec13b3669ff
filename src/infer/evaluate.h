// Negative log-likelihood of text under a model, in nats; sums are taken in double in the order of
// the tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compile/options.h"
#include "data/rows.h"
#include "data/token_stream.h"
#include "runtime/executor.h"

namespace octet {

struct NllSum {
  double sum = 0;
  int64_t n_tokens = 0;  // predicted ones
  void add(const NllSum& other) {
    sum += other.sum;
    n_tokens += other.n_tokens;
  }
  double mean() const { return n_tokens > 0 ? sum / static_cast<double>(n_tokens) : 0; }
};

// A number that a model gives, beside what it should be; NaN where there is none.
struct PredictedNumber {
  float predicted = 0, target = 0;
};
using Figures = std::vector<std::pair<std::string, double>>;  // by name
// Figures of the numbers of a term that compares some (LossTerm::compared): "spearman", that
// correlation over those with a target, NaN where it is not defined; or of label sets
// "subset_accuracy" and "micro_f1" (infer/metrics.h).
Figures compared_figures(const LossTerm& term, std::span<const PredictedNumber> numbers);

// The outputs of a loss's metrics over all items that counted.
struct MetricSum {
  std::string name;
  NllSum sum = {};                            // n_tokens: items
  std::vector<PredictedNumber> numbers = {};  // of LossTerm::compared, all items in order
};
struct RunEvaluation {
  std::vector<MetricSum> metrics;  // of each loss in turn
  // Sum over the losses of weight * mean of its first metric; nothing where no item counted.
  std::optional<double> loss(std::span<const LossTerm> terms) const;
  // Means of the other metrics by name, "correct" as "accuracy", and compared_figures() in the
  // place of what a term compares; of losses where no item counted none, and no correlation that
  // is not defined.
  Figures figures(std::span<const LossTerm> terms) const;
};
// One batch; `evaluate` is a bound evaluate function of its size.
RunEvaluation evaluate_batch(BoundPlan& evaluate, Batch batch, std::span<const LossTerm> terms);

// The same of each sample (of a row where none belong together), those that only fill up left out;
// n_tokens are its items that count.
struct SampleMetric {
  std::string name;
  std::vector<NllSum> samples;
  std::vector<PredictedNumber> numbers = {};  // of LossTerm::compared
};
std::vector<SampleMetric> sample_metrics(BoundPlan& evaluate, const EvalRows& rows, int64_t batch,
                                         std::span<const LossTerm> terms);

// `evaluate` is a bound evaluate function of this batch size.
NllSum batch_nll(BoundPlan& evaluate, const Batch& batch);

// All labels, row by row, `batch` rows at a time; rows without labels are left out. Where rows come
// in several lengths each has a function.
using EvaluateOfLength = std::function<BoundPlan&(int64_t length)>;
std::vector<NllSum> row_nll(const EvaluateOfLength& evaluate, const EvalRows& rows, int64_t batch);
std::vector<NllSum> row_nll(BoundPlan& evaluate, const EvalRows& rows, int64_t batch);

// Two models on the same rows: means over all tokens, and their standard errors over the rows, NaN
// of one row, which tells of none.
// The difference's is of the rows' differences, which what is hard in both does not enter.
struct PairedNll {
  double before = 0, after = 0, difference = 0;
  double before_error = 0, after_error = 0, difference_error = 0;
};
PairedNll paired_nll(std::span<const NllSum> before, std::span<const NllSum> after);

// The documents of a stream, in order.
struct DocumentLimits {
  int64_t max_documents = 0;  // 0: all
  int64_t max_tokens = 0;     // of each, beginning with its first; 0: all
};
std::vector<std::vector<int32_t>> documents_of(const TokenStream& stream,
                                               const DocumentLimits& limits);

// Each document on its own: its first `seq` tokens, each predicted from those before it; the first
// is given. One result a document; rows are filled with several documents at a time.
struct DocumentBatch {
  int64_t batch = 1, seq = 1;
};
std::vector<NllSum> document_nll(BoundPlan& evaluate,
                                 std::span<const std::vector<int32_t>> documents,
                                 const DocumentBatch& size);

}  // namespace octet
