// What a model is trained for: a loss over its outputs and over inputs of the loss's own.
//
//   loss = inv_n * sum over its items of their losses,   inv_n = 1 / N
// N counts the items of all micro-batches and ranks of a step, so that neither how rows are cut
// into micro-batches nor how many ranks there are changes what is trained. Several losses are
// summed, each with a weight and an N of its own.
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
  std::vector<Metric> metrics = {};  // the first one's mean over the items is the loss
};

struct LossDef {
  std::string_view name;  // of train.loss
  std::string_view help;
  std::string_view output;  // of the model, that it reads
  std::vector<InputSpec> (*inputs)(const ModelSpec& spec);
  // The input whose elements that are not kIgnoredLabel are the items; or "rows", "samples".
  std::string_view counted;
  std::vector<std::string_view> metrics;  // their names, in order
  LossValues (*build)(Blocks& blocks, ValueId output, ValueId inv_n);
};

// A loss of a run and what it counts beside the others.
struct WeightedLoss {
  std::string name;
  double weight = 1;
  bool operator==(const WeightedLoss&) const = default;
};

std::span<const LossDef* const> losses();  // the visible list
const LossDef* find_loss(std::string_view name);

}  // namespace octet
