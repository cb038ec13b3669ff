// Runs a tree. One Evaluator renders once.
//
// Loops, macros, set and filter blocks, {% with %} and {% generation %} open scopes; {% if %} does
// not. What a scope assigns is its own; what it reads is its own, or of the nearest scope around.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace octet::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<int, Value> variables;
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
  // Of {% generation %}: the byte of the text where each begins, and its characters.
  const std::vector<std::pair<size_t, int64_t>>& generations() const { return generations_; }

  // Whether the loop's `if` lets this item through.
  bool passes(const Loop& loop, const Value& item);

 private:
  enum class Flow { next, break_loop, continue_loop };

  // Expressions (eval_expression.cpp).
  Value evaluate(const Expr& expr);
  Value evaluate_compound(const Expr& expr);
  Value look_up(int name);
  Value signed_value(ExprKind kind, const Value& operand);
  Value make_dict(const Expr& expr);
  Value make_slice(const Expr& expr);
  bool compare_chain(const Expr& expr);
  Value apply(const Expr& expr, Use use, const Value& value);
  Value call(const Expr& expr, const Value* caller = nullptr);
  Value call(const Value& target, Arguments arguments);
  Arguments arguments_of(const Expr& expr);

  // Statements (eval_statement.cpp).
  Flow execute(const Body& body);
  Flow execute(const Stmt& stmt);
  void write_block(const Value& text);
  void assign(const Expr& target, const Value& value);
  Flow assign_block(const Stmt& stmt);
  Flow filter_block(const Stmt& stmt);
  Flow with(const Stmt& stmt);
  void generation(const Stmt& stmt);

  // Loops and macros (eval_scoped.cpp).
  void run_loop(const Stmt& stmt, const Value& items, int depth);
  Value call_loop(const Loop& loop, const Value& items);
  void bind(const Macro& macro, Arguments& arguments, Scope& scope);
  Value call_macro(const Macro& macro, Arguments arguments);

  // Makes a new scope the one that names are looked up in, and `out` what is written to, for a
  // while.
  class Within;
  class Captured;

  const Tree& tree_;
  Runtime runtime_;
  std::unordered_map<std::string_view, int> numbers_;  // of the tree's names
  ScopePtr root_, scope_;
  Builder text_;
  Builder* out_ = &text_;
  Value block_text_;  // what a filter block's filter begins with
  std::vector<std::pair<size_t, int64_t>> generations_;
};

class Evaluator::Within {
 public:
  Within(Evaluator& evaluator, ScopePtr around) : evaluator_(evaluator), before_(evaluator.scope_) {
    evaluator.scope_ = std::make_shared<Scope>();
    evaluator.scope_->parent = std::move(around);
  }
  explicit Within(Evaluator& evaluator) : Within(evaluator, evaluator.scope_) {}
  ~Within() { evaluator_.scope_ = std::move(before_); }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  Evaluator& evaluator_;
  ScopePtr before_;
};

class Evaluator::Captured {
 public:
  explicit Captured(Evaluator& evaluator)
      : evaluator_(evaluator),
        text_(evaluator.runtime_),
        before_(std::exchange(evaluator.out_, &text_)) {}
  ~Captured() { evaluator_.out_ = before_; }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  Value take() { return text_.take(); }

 private:
  Evaluator& evaluator_;
  Builder text_;
  Builder* before_;
};

struct Macro : Typed<Type::macro> {
  Macro(const Stmt& of, ScopePtr around) : stmt(of), scope(std::move(around)) {}
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;
  const Stmt& stmt;
  ScopePtr scope;
};

// The variable `loop`.
struct Loop : Typed<Type::loop> {
  Loop(Evaluator& by, const Stmt& of, int level) : evaluator(by), stmt(of), depth0(level) {}
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;

  bool peek();     // is there one more item
  bool advance();  // to it
  int64_t length();

  Evaluator& evaluator;
  const Stmt& stmt;
  ScopePtr scope;  // around the loop
  int depth0;
  std::span<const Value> rest;  // not reached yet
  size_t n_passed = 0;          // the first of them that the loop's `if` is known to let through
  std::vector<Value> passed;    // what `rest` is once all are known
  Value before, current;
  int64_t index0 = -1;
  std::optional<std::vector<Value>> last_changed;
};

}  // namespace octet::jinja
