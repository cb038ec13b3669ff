#include "text/jinja/characters.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/print.h"

namespace octet::jinja {

Evaluator::Evaluator(const Tree& tree, const Limits& limits, const std::tm& clock)
    : tree_(tree),
      runtime_(limits, clock),
      root_(std::make_shared<Scope>()),
      scope_(root_),
      text_(runtime_) {
  for (const std::string& name : tree.names) {
    numbers_.emplace(name, static_cast<int>(numbers_.size()));
  }
  for (const Builtin& row : function_rows()) {
    define(std::string(row.name), runtime_.make<Function>(&row, Value()));
  }
}

void Evaluator::define(const std::string& name, Value value) {
  const auto it = numbers_.find(name);
  if (it != numbers_.end()) root_->variables[it->second] = std::move(value);
}

std::string Evaluator::run() {
  const Within within(*this, root_);
  for (const int name : tree_.assigned_first) scope_->variables[name] = Value();
  execute(tree_.body);
  return text_.take_bytes();
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const auto& stmt : body) {
    const Flow flow = execute(*stmt);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Evaluator::Flow Evaluator::execute(const Stmt& stmt) {
  const Runtime::Depth depth(runtime_);
  runtime_.charge(1);
  runtime_.line = stmt.line;
  switch (stmt.kind) {
    case StmtKind::output:
      for (const ExprPtr& expr : stmt.exprs) append_text(*out_, evaluate(*expr));
      break;
    case StmtKind::assign:
      assign(*stmt.target, evaluate(*stmt.value));
      break;
    case StmtKind::assign_block:
      return assign_block(stmt);
    case StmtKind::loop: {
      const Value items = evaluate(*stmt.value);
      run_loop(stmt, items, 0);
      break;
    }
    case StmtKind::branch:
      for (const Branch& branch : stmt.branches) {
        if (is_true(runtime_, evaluate(*branch.condition))) return execute(branch.body);
      }
      return execute(stmt.else_body);
    case StmtKind::macro:
      scope_->variables[stmt.name] = runtime_.make<Macro>(stmt, scope_);
      break;
    case StmtKind::call_block: {
      const Value caller = runtime_.make<Macro>(stmt, scope_);
      write_block(call(*stmt.value, &caller));
      break;
    }
    case StmtKind::filter_block:
      return filter_block(stmt);
    case StmtKind::with:
      return with(stmt);
    case StmtKind::generation:
      generation(stmt);
      break;
    case StmtKind::break_loop:
      return Flow::break_loop;
    case StmtKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

void Evaluator::write_block(const Value& text) {
  if (!text.is_text()) runtime_.fail("expected a block's text, got {}", type_name(text));
  append_text(*out_, text);
}

void Evaluator::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::name) {
    scope_->variables[target.name] = value;
    return;
  }
  if (target.kind == ExprKind::namespace_target) {
    const Value holder = look_up(target.name);
    const auto* space = holder.as<Namespace>();
    if (space == nullptr) runtime_.fail("cannot assign an attribute of what is no namespace");
    return space->attributes->set(runtime_, target.constant, value);
  }
  const Items items(runtime_, value);
  if (items.view().size() != target.children.size()) {
    runtime_.fail("expected {} values to unpack, got {}", target.children.size(),
                  items.view().size());
  }
  for (size_t i = 0; i < target.children.size(); ++i) assign(*target.children[i], items.view()[i]);
}

Evaluator::Flow Evaluator::assign_block(const Stmt& stmt) {
  Value text;
  {
    const Within within(*this);
    Captured captured(*this);
    const Flow flow = execute(stmt.body);
    if (flow != Flow::next) return flow;
    text = captured.take();
    if (stmt.value) {
      block_text_ = text;
      text = evaluate(*stmt.value);
    }
  }
  assign(*stmt.target, text);
  return Flow::next;
}

Evaluator::Flow Evaluator::filter_block(const Stmt& stmt) {
  const Within within(*this);
  {
    Captured captured(*this);
    const Flow flow = execute(stmt.body);
    if (flow != Flow::next) return flow;
    block_text_ = captured.take();
  }
  write_block(evaluate(*stmt.value));
  return Flow::next;
}

Evaluator::Flow Evaluator::with(const Stmt& stmt) {
  std::vector<Value> values;  // as seen from around
  for (const ExprPtr& expr : stmt.exprs) values.push_back(evaluate(*expr));
  const Within within(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.targets[i], values[i]);
  return execute(stmt.body);
}

void Evaluator::generation(const Stmt& stmt) {
  // Where it stands in the text is known of what has been written for good; inside a macro that is
  // where the macro's text will begin.
  const Value said = call_macro(Macro(stmt, scope_), {});
  generations_.emplace_back(text_.bytes().size(), count_characters(runtime_.read(said)));
  append_text(*out_, said);
}

}  // namespace octet::jinja
