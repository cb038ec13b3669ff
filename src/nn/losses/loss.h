// Loss that a model is trained for: over its outputs and over inputs of the loss's own.
//
//   loss = inv_n * sum over its items of their losses,   inv_n = 1 / N
// N counts the items of all micro-batches and ranks of a step, so that neither how rows are cut
// into micro-batches nor how many ranks there are changes what is trained (but of contrastive,
// whose items are told from each other). Several losses are summed, each with a weight and an N of
// its own. What follows from labels and from Blocks::in_f32 is f32 under every recipe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/inputs.h"
#include "ir/graph.h"

namespace octet {

class Blocks;
struct ModelSpec;

// A named result f32 [N items], one an item of the loss; 0 where an item does not count.
struct Metric {
  std::string_view name;
  ValueId value = kNoValue;
};

struct LossValues {
  ValueId loss = kNoValue;           // [], inv_n * sum of the items'
  std::vector<Metric> metrics = {};  // the first one's mean is what an evaluation calls the loss
};

// Options that a run says of its losses; each reads what it knows.
struct LossOptions {
  double smoothing = 0;  // of labels, in [0, 1): the share that all classes or tokens have alike
  double temperature = 0.05;  // of contrastive: cosines are divided by it
  // Parameters of pairwise and of losses of two answers: how far the model may go from the
  // reference, or what rewards are multiplied by; of simpo, the margin that is asked for.
  double beta = 0.1, gamma = 0.5;
  int64_t negatives = 0;  // of contrastive: rows of a sample that do not mean the same
  bool operator==(const LossOptions&) const = default;
};

struct LossCall {
  ValueId output = kNoValue;  // of the model
  ValueId inv_n = kNoValue;
  LossOptions options = {};
};

// Figures of an evaluation, of numbers beside those that they should be:
//   rank_correlation  "spearman", Spearman's correlation
//   label_sets        of logits, where a row has the labels of those above 0 and should have those
//                     above 0.5: "subset_accuracy" and "micro_f1" (infer/metrics.h)
enum class Comparison : uint8_t { rank_correlation, label_sets };

struct LossDef {
  std::string_view name;  // of train.loss
  std::string_view help;
  std::string_view output;  // of the model, that it reads
  std::vector<InputSpec> (*inputs)(const ModelSpec& spec);
  // The input whose elements that are not kIgnoredLabel, nor NaN, are the items; or "rows",
  // "samples".
  std::string_view counted;
  bool hides_tokens =
      false;  // its labels are of tokens that the data hides: text as it is has none
  int64_t rows_per_sample = 1;            // rows that belong together: 2 of a pair
  bool compares_answers = false;          // rows are two answers to a prompt, the better one first
  bool takes_negatives = false;           // LossOptions::negatives rows more
  int64_t min_samples = 1;                // of a micro-batch: 2 where they are told from each other
  std::vector<std::string_view> metrics;  // their names, in order
  // One of `metrics` that an evaluation does not average but compares with `counted`, numbers.
  std::string_view compared = "";
  Comparison comparison = Comparison::rank_correlation;
  LossValues (*build)(Blocks& blocks, const LossCall& call);
};

// A loss of a run and what it counts beside the others.
struct WeightedLoss {
  std::string name;
  double weight = 1;
  LossOptions options = {};
  bool operator==(const WeightedLoss&) const = default;
};

std::span<const LossDef* const> losses();  // the visible list
const LossDef* find_loss(std::string_view name);

}  // namespace octet
