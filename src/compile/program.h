// A program: the functions of a training run, compiled from one model, sharing one persistent
// layout.
//
//   step           forward, backward and update in one plan (accumulation = 1)
//   micro_first    forward and backward; gradients overwrite "accumulated:<parameter>"
//   micro_next     the same; gradients are added
//   update         the optimizer from the accumulated gradients
//   prepare_state  what is derived from parameters (8-bit copies of weights), after they were
//                  written and before anything else runs; training functions keep it up to date
//   evaluate       forward to "loss" and "nll"
//   logits         forward to "logits"
// Inputs of the host: "tokens", "positions", "labels", "inv_n" where a function has them; see
// optim/adamw.h for the rest. Where a recipe quantizes, "quantizer_flag" (bool) says that a
// quantizer met a value that is not finite: an output of step; an input of update,
// "accumulated:...".
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "optim/adamw.h"
#include "passes/precision/recipe.h"
#include "plan/plan.h"

namespace octet {

enum class FunctionKind : uint8_t {
  step,
  micro_first,
  micro_next,
  update,
  prepare_state,
  evaluate,
  logits
};
std::string_view enum_name(FunctionKind kind);

struct BatchSize {
  int64_t batch = 1, seq = 1;
};

// The Logical forward graph with outputs "loss" and "nll", or "logits".
enum class ForwardKind : uint8_t { loss, logits };
using ForwardBuilder = std::function<Graph(const BatchSize& size, ForwardKind kind)>;

struct ProgramOptions {
  ForwardBuilder forward;
  std::string recipe = "bf16";
  RecipeOptions recipe_options = {};
  std::optional<Recompute> recompute = {};  // the recipe's choice where absent
  int64_t head_chunk_bytes = 0;  // logits of a run of rows (passes/lower/chunk_head.h); 0: whole
  bool strict_fusion = false;    // a fusion that did not fire is an error
  int64_t memory_budget = 0;     // planned bytes; 0: no limit (compile/budget.h settles it)
  AdamwPolicy optim = {};
  std::vector<std::string> no_decay = {};  // names of parameters without weight decay
  BatchSize train = {};                    // fixes the persistent layout and the training functions
  int accumulate = 1;
  bool inference_only = false;  // no states: only evaluate and logits
};

class Program {
 public:
  Program(ProgramOptions options, const Catalogue& catalogue);

  // The functions that one training step runs: {step} or {micro_first, micro_next, update}.
  std::vector<FunctionKind> train_functions() const;
  // Whether anything is derived from parameters: prepare_state is empty otherwise.
  bool has_derived() const;

  // Compiled on first use and kept; plans live as long as the program. `size` matters to evaluate
  // and logits only.
  const Plan& plan(FunctionKind kind, const BatchSize& size);
  const Plan& plan(FunctionKind kind) { return plan(kind, options_.train); }

  const ProgramOptions& options() const { return options_; }
  // Parameters and optimizer states.
  const Layout& layout() const { return layout_; }
  // Compiles the training functions and evaluate; the bytes that a run of them allocates.
  int64_t planned_bytes();
  // Bytes per lane of the largest function compiled so far.
  void lane_bytes(int64_t (&bytes)[kLaneCount]) const;

 private:
  Graph build(FunctionKind kind, const BatchSize& size) const;
  Graph training_graph(const BatchSize& size) const;
  Graph typed_graph(const Graph& logical, RecipeOptions options) const;
  Graph forward_graph(const BatchSize& size, ForwardKind kind) const;
  Graph step_graph(const Graph& typed) const;
  Graph update_graph(const Graph& typed) const;
  std::vector<UpdateItem> update_items(const Graph& graph) const;

  ProgramOptions options_;
  const Catalogue& catalogue_;
  Layout layout_;
  std::map<std::tuple<FunctionKind, int64_t, int64_t>, std::unique_ptr<Plan>> plans_;
};

}  // namespace octet
