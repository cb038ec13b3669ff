// The functions of a program, in one table: a name, and how its graph is composed.
//
//   step           forward, backward and update in one plan (accumulation = 1)
//   micro_first    forward and backward; gradients overwrite the accumulators
//   micro_next     the same; gradients are added
//   update         the optimizer from the accumulated gradients
//   prepare_state  what is derived from parameters (8-bit copies of weights), after they were
//                  written and before anything else runs; training functions keep it up to date
//   gather_weights the ranks' shards of the weights that an update leaves as such, for what reads
//                  them before the next step does
//   evaluate       forward to "loss" and "nll"
//   logits         forward to "logits"
//   encode         of a model with a source: what its attention to that reads, into caches
//   prefill        as logits for the first tokens of a text, into a KV cache (BatchSize::cache),
//                  with encode
//   decode         the same for those that follow
//   pick           as decode, to each row's most probable "token" and its logit, "top"
//   fill           the same without logits: into the cache alone
//   score          as evaluate, over the cache. Functions of one batch and cache size share it
// Inputs of the host: "tokens", "positions", "labels", "inv_n" where a function has them; see
// optim/optimizer.h for the rest. Where a recipe quantizes, "quantizer_flag" (bool) says that a
// quantizer met a value that is not finite: an output of step; a state of update.
#pragma once

#include <map>
#include <span>
#include <string_view>

#include "compile/options.h"
#include "passes/driver.h"
#include "plan/catalogue.h"

namespace octet {

namespace function {
inline constexpr std::string_view step = "step", micro_first = "micro_first",
                                  micro_next = "micro_next", update = "update",
                                  prepare_state = "prepare_state",
                                  gather_weights = "gather_weights", evaluate = "evaluate",
                                  logits = "logits", encode = "encode", prefill = "prefill",
                                  decode = "decode", pick = "pick", fill = "fill", score = "score";
}  // namespace function

// The two plans of a training function, over the same states: `measuring` is that of the steps that
// measure what the others read as it was left (Scaling::periodic). Most programs have plain ones
// alone. Other functions have no kinds.
enum class StepKind : uint8_t { plain, measuring };
constexpr auto value_names(StepKind) {
  return name_list("plain", "measuring");
}
bool has_measuring_steps(const ProgramOptions& options);
// Kind of an attempted step, counted from 1: each kRescalePeriod-th measures.
StepKind step_kind(const ProgramOptions& options, uint32_t attempt);

// The typed graph that a function is composed from.
enum class FunctionSource : uint8_t { training, loss, logits };

// The typed graphs that functions are composed from: each is built once, and kept.
class TypedGraphs {
 public:
  TypedGraphs(ProgramOptions options, const Catalogue& catalogue)
      : options_(std::move(options)), catalogue_(catalogue) {}

  const ProgramOptions& options() const { return options_; }
  const Graph& graph(FunctionSource source, const BatchSize& size, StepKind kind);
  // Forward and backward, with outputs "loss", "nll", a gradient for each parameter, next values of
  // histories and of what is derived from weights.
  const Graph& training(const BatchSize& size, StepKind kind);
  // Forward only. Scales are the batch's own, so that a model means the same in every program.
  const Graph& forward(const BatchSize& size, ForwardKind kind);

  // Log of what each pass did, in order: of typed graphs, and of whoever else writes here.
  const PassLog& log() const { return log_; }
  PassLog& log() { return log_; }

 private:
  Graph built(const BatchSize& size, ForwardKind kind);
  std::vector<Pass> evaluated_only() const;
  std::vector<Pass> logical(const LoraOptions& lora) const;
  std::vector<Pass> typing(const RecipeOptions& options) const;

  ProgramOptions options_;
  const Catalogue& catalogue_;
  std::map<std::pair<BatchSize, StepKind>, Graph> training_;
  std::map<std::pair<ForwardKind, BatchSize>, Graph> forward_;
  PassLog log_;
};

struct FunctionDef {
  std::string_view name;
  FunctionSource source = FunctionSource::training;
  Graph (*compose)(const Graph& typed, const ProgramOptions& options, const BatchSize& size);
};
// CHECKs that there is one of this name.
const FunctionDef& find_function(std::string_view name);

}  // namespace octet
