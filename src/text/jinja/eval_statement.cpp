#include "text/jinja/characters.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"
#include "text/jinja/within.h"

namespace octet::jinja {

std::optional<Value>* Scope::find(int name) {
  for (Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(int name, std::optional<Value> value) {
  for (auto& [known, held] : variables) {
    if (known != name) continue;
    held = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

Evaluator::Evaluator(const Tree& tree, const Limits& limits, const std::tm& clock)
    : tree_(tree),
      runtime_(limits, clock),
      variables_(tree.names.size()),
      root_(std::make_shared<Scope>()),
      scope_(root_) {}

void Evaluator::define(const std::string& name, Value value) {
  for (size_t i = 0; i < tree_.names.size(); ++i) {
    if (tree_.names[i] == name) variables_[i] = std::move(value);
  }
}

std::string Evaluator::run() {
  enter(*root_, tree_.scope);
  execute(tree_.body);
  return std::move(text_);
}

std::optional<Value> Evaluator::resolve(int name) {
  return variables_[static_cast<size_t>(name)];
}

void Evaluator::enter(Scope& scope, const ScopePlan& plan) {
  for (const auto& [name, action] : plan.loads) {
    std::optional<Value> value;
    if (action == LoadAction::parameter) continue;
    if (action == LoadAction::resolve) value = resolve(name);
    if (action == LoadAction::alias) {
      const std::optional<Value>* outer = scope.parent->find(name);
      CHECK(outer != nullptr);  // the plan says that the scope around has it
      value = *outer;
    }
    scope.set(name, std::move(value));
  }
}

void Evaluator::write(const Value& value) {
  if (value.is_text()) {
    *out_ += value.text();
    runtime_.charge(value.text().size() / 16);
  } else {
    *out_ += str(runtime_, value);
  }
  check_size(runtime_, *out_);
}

// Of tags, whose results Jinja does not turn into text.
void Evaluator::write_text(const Value& value) {
  if (!value.is_text()) runtime_.fail("expected text, got {}", type_name(value));
  write(value);
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const StmtPtr& stmt : body) {
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
      for (const ExprPtr& expr : stmt.exprs) write(evaluate(*expr));
      break;
    case StmtKind::assign:
      assign(*stmt.target, evaluate(*stmt.value));
      break;
    case StmtKind::assign_block:
      return assign_block(stmt);
    case StmtKind::loop:
      return loop(stmt);
    case StmtKind::branch:
      return branch(stmt);
    case StmtKind::macro:
      define_macro(stmt);
      break;
    case StmtKind::call_block:
      call_block(stmt);
      break;
    case StmtKind::filter_block:
      return filter_block(stmt);
    case StmtKind::with:
      return with(stmt);
    case StmtKind::generation:
      generation(stmt);
      break;
    case StmtKind::block:
      block(stmt);
      break;
    case StmtKind::break_loop:
      return Flow::break_loop;
    case StmtKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

Evaluator::Flow Evaluator::branch(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (is_true(runtime_, evaluate(*branch.condition))) return execute(branch.body);
  }
  return execute(stmt.else_body);
}

void Evaluator::assign_name(int name, const Value& value) {
  scope_->set(name, value);
  // Blocks see what the top of the template assigns.
  if (scope_ == root_) variables_[static_cast<size_t>(name)] = value;
}

void Evaluator::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::name) return assign_name(target.name, value);
  if (target.kind == ExprKind::namespace_target) {
    const Value holder = look_up(target.name);
    const auto* space = holder.as<Namespace>();
    if (space == nullptr) runtime_.fail("cannot assign an attribute of what is no namespace");
    return space->attributes->set(runtime_, runtime_.text(target.text), value);
  }
  if (!is_iterable(value)) runtime_.fail("cannot unpack a {}", type_name(value));
  const Sequence* items = to_list(runtime_, value);
  if (items->items.size() != target.children.size()) {
    runtime_.fail("expected {} values to unpack, got {}", target.children.size(),
                  items->items.size());
  }
  for (size_t i = 0; i < items->items.size(); ++i) assign(*target.children[i], items->items[i]);
}

Evaluator::Flow Evaluator::assign_block(const Stmt& stmt) {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  enter(*scope, stmt.scope);
  Value text;
  {
    const Within within(*this, scope);
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
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  enter(*scope, stmt.scope);
  const Within within(*this, scope);
  {
    Captured captured(*this);
    const Flow flow = execute(stmt.body);
    if (flow != Flow::next) return flow;
    block_text_ = captured.take();
  }
  write_text(evaluate(*stmt.value));
  return Flow::next;
}

Evaluator::Flow Evaluator::with(const Stmt& stmt) {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  enter(*scope, stmt.scope);
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    const Value value = evaluate(*stmt.exprs[i]);
    const Within within(*this, scope);
    assign(*stmt.targets[i], value);
  }
  const Within within(*this, scope);
  return execute(stmt.body);
}

void Evaluator::define_macro(const Stmt& stmt) {
  assign_name(stmt.name, runtime_.make<Macro>(*this, stmt, scope_));
}

void Evaluator::call_block(const Stmt& stmt) {
  const Value caller = runtime_.make<Macro>(*this, stmt, scope_);
  write_text(call(*stmt.value, &caller));
}

void Evaluator::generation(const Stmt& stmt) {
  // Where it stands in the text is known of what has been written for good; inside a macro that is
  // where the macro's text will begin.
  const Macro body(*this, stmt, scope_);
  Arguments none;
  const Value said = call_macro(body, none);
  const std::string_view text = text_;
  n_characters_ += count_characters(text.substr(counted_));
  counted_ = text.size();
  generations_.emplace_back(n_characters_, count_characters(said.text()));
  write(said);
}

void Evaluator::block(const Stmt& stmt) {
  auto scope = std::make_shared<Scope>();
  enter(*scope, stmt.scope);
  const Within within(*this, scope);
  execute(stmt.body);
}

}  // namespace octet::jinja
