// Options that a program is compiled from, and the choices that a run makes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/batch_size.h"
#include "optim/optimizer.h"
#include "passes/driver.h"
#include "passes/lora.h"
#include "passes/loss_scale.h"
#include "passes/parallel/options.h"
#include "passes/precision/recipe.h"

namespace octet {

// The Logical forward graph with outputs "loss" and "nll", or "logits".
enum class ForwardKind : uint8_t { loss, outputs };
using ForwardBuilder = std::function<Graph(const BatchSize& size, ForwardKind kind)>;

// A loss of a run: what divides the sum over its items, what they are, its named results.
struct LossTerm {
  std::string inv_n = "inv_n";     // the step scalar
  std::string counted = "labels";  // the batch's array whose elements count, or "rows", "samples"
  int64_t rows_per_sample = 1;     // of the run
  double weight = 1;
  std::vector<std::string> metrics = {"nll"};  // outputs, the first's mean is the loss
  std::string compared = {};                   // one of them, with `counted` (LossDef)
  int64_t n_labels = 0;  // of sets that are compared; 0: numbers, by their rank correlation
};

struct ProgramOptions {
  ForwardBuilder forward;
  std::vector<LossTerm> losses = {LossTerm()};
  std::string recipe = "bf16";
  LossScalePolicy loss_scale = {};  // wants OptimPolicy::clipping global_norm
  RecipeOptions recipe_options = {};
  LoraOptions lora = {};     // rank 0: no adapters
  bool loads_model = false;  // adapters may be trained beside its weights
  // Patterns of parameters that are not trained (passes/freeze.h). With adapters none is trained.
  std::vector<std::string> freeze = {};
  std::optional<Recompute> recompute = {};  // the recipe's choice where absent
  int recompute_layers = -1;     // full: of the first so many layers, else cheap; negative: of all
  int64_t head_chunk_bytes = 0;  // logits of a run of rows (passes/lower/chunk_head.h); 0: whole
  bool strict_fusion = false;    // a fusion that did not fire is an error
  int64_t memory_budget = 0;     // planned bytes; 0: no limit (compile/budget.h settles it)
  OptimPolicy optim = {};
  ParallelOptions parallel = {};
  std::vector<std::string> no_decay = {};  // names of parameters without weight decay
  BatchSize train = {};                    // fixes the persistent layout and the training functions
  // Sequence lengths that training functions and evaluate exist for besides train.seq, all below.
  std::vector<int64_t> shorter = {};
  // Other sizes that training functions alone exist for: more rows, which are shorter.
  std::vector<BatchSize> batches = {};
  std::vector<int64_t> texts =
      {};  // lengths of single rows that logits exists for besides, by size
  int accumulate = 1;
  bool inference_only = false;            // no states: only functions that run forward
  bool freezes_parameters = false;        // for recipe_options.frozen, without adapters
  std::vector<Pass> forward_passes = {};  // Typed -> Typed, of functions that run forward
};

}  // namespace octet
