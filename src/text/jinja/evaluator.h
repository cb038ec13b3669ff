// Runs a tree. One Evaluator renders once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace octet::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, std::optional<Value>>> variables;  // no value: not assigned yet

  // This scope's own, or of the nearest one around that knows the name; null if none does.
  std::optional<Value>* find(int name);
  void set(int name, std::optional<Value> value);  // this scope's own
};
using ScopePtr = std::shared_ptr<Scope>;

struct Macro;
struct Loop;

class Evaluator {
 public:
  Evaluator(const Tree& tree, const Limits& limits, const std::tm& clock);

  Runtime& runtime() { return runtime_; }
  void define(const std::string& name, Value value);  // a variable of the template
  std::string run();
  // Of {% generation %}, in characters of the text: where each begins, and its length.
  const std::vector<std::pair<int64_t, int64_t>>& generations() const { return generations_; }

  // A macro's body with its arguments bound, as text.
  Value call_macro(const Macro& macro, Arguments& arguments);
  // The body of a recursive loop for inner items.
  Value call_loop(const Stmt& stmt, const ScopePtr& scope, const Value& items, int depth);

 private:
  enum class Flow { next, break_loop, continue_loop };

  // Expressions (eval_expression.cpp).
  Value evaluate(const Expr& expr);
  Value evaluate_compound(const Expr& expr);
  Value look_up(int name);
  Value make_sequence(const Expr& expr, SequenceKind kind);
  Value make_dict(const Expr& expr);
  Value make_slice(const Expr& expr);
  Value concatenate(const Expr& expr);
  bool compare_chain(const Expr& expr);
  Value call(const Expr& expr, const Value* caller = nullptr);
  Value filter(const Expr& expr);
  bool test(const Expr& expr);
  Arguments arguments_of(const CallArguments& arguments);

  // Statements (eval_statement.cpp).
  Flow execute(const Body& body);
  Flow execute(const Stmt& stmt);
  void write(const Value& value);
  void write_text(const Value& value);
  Flow branch(const Stmt& stmt);
  void assign(const Expr& target, const Value& value);
  void assign_name(int name, const Value& value);
  Flow assign_block(const Stmt& stmt);
  Flow filter_block(const Stmt& stmt);
  Flow with(const Stmt& stmt);
  void define_macro(const Stmt& stmt);
  void call_block(const Stmt& stmt);
  void generation(const Stmt& stmt);
  void block(const Stmt& stmt);

  // Loops (eval_loop.cpp).
  Flow loop(const Stmt& stmt);
  void run_loop(const Stmt& stmt, const Value& items, int depth);
  bool run_items(const Stmt& stmt, const Value& items, int depth);
  Next tested(const Stmt& stmt, const Value& items);

  // Scopes.
  std::optional<Value> resolve(int name);
  void enter(Scope& scope, const ScopePlan& plan);
  void bind(const Macro& macro, Arguments& arguments, Scope& scope);

  // Makes `scope` the one that names are looked up in, and `out` what is written to, for a while.
  class Within;
  class Captured;

  const Tree& tree_;
  Runtime runtime_;
  std::vector<std::optional<Value>> variables_;  // by name: given, and assigned at the top
  ScopePtr root_, scope_;
  std::string text_;
  std::string* out_ = &text_;
  int64_t n_characters_ = 0;  // of the first counted_ bytes of text_
  size_t counted_ = 0;
  Value block_text_;  // what a filter block's filter begins with
  std::vector<std::pair<int64_t, int64_t>> generations_;
};

struct Macro : Object {
  Macro(Evaluator& by, const Stmt& of, ScopePtr within)
      : evaluator(by), stmt(of), scope(std::move(within)) {}
  const char* type_name() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  Value call(Runtime&, Arguments& arguments) override {
    return evaluator.call_macro(*this, arguments);
  }
  std::string printed() const override;
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;

  Evaluator& evaluator;
  const Stmt& stmt;
  ScopePtr scope;
};

// The variable `loop`.
struct Loop : Object {
  explicit Loop(Runtime& of) : runtime(of) {}
  const char* type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override;
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;
  std::string printed() const override;

  bool advance();  // to the next item
  bool peek();     // is there one
  int64_t length();

  Runtime& runtime;
  Value items;  // what is walked through
  Next next;
  std::vector<Value> ahead;  // already taken from next, reversed
  Value before, current;
  int64_t index0 = -1;
  int depth0 = 0;
  std::optional<int64_t> known_length;
  std::optional<std::vector<Value>> last_changed;
  std::function<Value(const Value&)> recurse;  // of a recursive loop
};

}  // namespace octet::jinja
