// Runs a tree. One Evaluator renders once.
//
// Loops, macros, set and filter blocks and {% generation %} open scopes; {% if %} does not. What a
// scope assigns is its own; what it reads is its own, or of the nearest scope around.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace octet::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<int, Value> variables = {};
};
using ScopePtr = std::shared_ptr<Scope>;

struct Macro;
struct Loop;

class Evaluator {
 public:
  Evaluator(const Tree& tree, const RenderOptions& options);

  Runtime& runtime() { return runtime_; }
  void define(const std::string& name, Value value);  // a variable of the template
  std::string run();
  // Blocks of {% generation %}: the byte of the text where each begins, and its characters.
  const std::vector<std::pair<size_t, int64_t>>& generations() const { return generations_; }

  // True if the loop's `if` lets this item through.
  bool passes(const Loop& loop, const Value& item);

 private:
  enum class Flow { next, break_loop, continue_loop };

  // Expressions (eval_expression.cpp).
  Value evaluate(const Expr& expr);
  Value evaluate_compound(const Expr& expr);
  Value look_up(int name);
  Value dict(const Expr& expr);
  Value slice(const Expr& expr);
  bool compare_chain(const Expr& expr);
  Value apply(const Expr& expr, Use use, const Value& value);
  Value call(const Expr& expr, const Value* caller = nullptr);
  Arguments arguments_of(const Expr& expr);

  // Statements (eval_statement.cpp).
  Flow execute(const Body& body);
  Flow execute(const Stmt& stmt);
  ScopePtr within(ScopePtr parent) const {
    return std::make_shared<Scope>(Scope{std::move(parent)});
  }
  void write_block(const Value& text);
  void assign(const Expr& target, const Value& value);
  Flow text_block(const Stmt& stmt);
  Flow run_loop(const Stmt& stmt);
  void bind(const Macro& macro, Arguments& arguments);
  Value call_macro(const Macro& macro, Arguments arguments);

  const Tree& tree_;
  Runtime runtime_;
  ScopePtr root_, scope_;
  Builder text_;
  Builder* out_ = &text_;
  Value block_text_;  // what a filter block's filter begins with
  std::vector<std::pair<size_t, int64_t>> generations_;
};

// Another value in a variable, for a while.
template <typename T>
class Replaced {
 public:
  Replaced(T& variable, T value)
      : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  ~Replaced() { variable_ = std::move(before_); }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

 private:
  T& variable_;
  T before_;
};

struct Macro : Typed<Type::macro> {
  Macro(const Stmt& of, ScopePtr around) : stmt(of), scope(std::move(around)) {}
  bool attribute(Runtime& runtime, const std::string& name, Value&) override {
    runtime.fail("attribute '{}' of a macro is outside the supported subset", name);
  }
  const Stmt& stmt;
  ScopePtr scope;
};

// The variable `loop`.
struct Loop : Typed<Type::loop> {
  Loop(Evaluator& by, const Stmt& of, ScopePtr around, std::span<const Value> items)
      : evaluator(by), stmt(of), scope(std::move(around)), rest(items) {}
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;

  bool has(size_t n);  // as many items more
  bool advance();      // to the next one
  size_t n_ready() const { return ready.size() - at; }

  Evaluator& evaluator;
  const Stmt& stmt;
  ScopePtr scope;               // around the loop
  std::span<const Value> rest;  // not looked at yet
  std::vector<Value> ready;     // from `at` on: let through by the loop's `if`, not reached yet
  size_t at = 0;
  Value before, current;
  int64_t index0 = -1;
};

}  // namespace octet::jinja
