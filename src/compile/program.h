// A program: the functions of a run, compiled from one model, over one persistent layout.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/functions.h"
#include "plan/plan.h"

namespace octet {

// A function at a batch size, and of which steps.
struct FunctionKey {
  std::string_view name;  // find_function takes it
  BatchSize size;
  StepKind kind = StepKind::plain;
  auto operator<=>(const FunctionKey&) const = default;
};

class Program {
 public:
  // The persistent layout is the union of the parameters and states of the training functions (of
  // evaluate where options.inference_only is set and `more` does not begin with logits), then of
  // `more`.
  Program(ProgramOptions options, const Catalogue& catalogue,
          const std::vector<FunctionKey>& more = {});

  // The functions that one training step runs: {step} or {micro_first, micro_next, update}.
  std::vector<std::string_view> train_functions() const;
  // The same of each kind of step and at each size: options.train's first, then what depends on
  // the size at the shorter lengths and the other batches.
  std::vector<FunctionKey> train_keys() const;
  // evaluate at each length.
  std::vector<FunctionKey> evaluate_keys() const;
  // logits of a row of each of options.texts.
  std::vector<FunctionKey> text_keys() const;
  // True if anything is derived from parameters: prepare_state is empty otherwise.
  bool has_derived() const;

  // Compiled on first use and kept; plans live as long as the program.
  const Plan& plan(const FunctionKey& key);
  const Plan& plan(std::string_view name, const BatchSize& size) {
    return plan(FunctionKey{name, size});
  }
  const Plan& plan(std::string_view name) { return plan(name, options().train); }

  const ProgramOptions& options() const { return typed_.options(); }
  // Parameters and states.
  const Layout& layout() const { return layout_; }
  // Compiles the training functions, evaluate and the longest of text_keys(); the bytes that a run
  // of them allocates.
  int64_t planned_bytes();
  // Bytes per arena of the largest function compiled so far.
  void arena_bytes(int64_t (&bytes)[kArenaCount]) const;
  // Log of what each pass did so far, in order.
  const PassLog& pass_log() const { return typed_.log(); }

 private:
  void add_to_layout(const FunctionKey& key);
  Graph compose(const FunctionKey& key);
  std::unique_ptr<Plan> compile(const FunctionKey& key);

  const Catalogue& catalogue_;
  TypedGraphs typed_;
  Layout layout_;
  std::map<FunctionKey, Graph> composed_;  // not planned yet
  std::map<FunctionKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace octet
