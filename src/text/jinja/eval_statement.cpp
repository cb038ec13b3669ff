// Statements, loops and macros.
#include <algorithm>

#include "text/jinja/evaluator.h"

namespace octet::jinja {

Evaluator::Evaluator(const Tree& tree, const RenderOptions& options)
    : tree_(tree),
      runtime_(options),
      root_(std::make_shared<Scope>()),
      scope_(root_),
      text_(runtime_) {
  for (const Builtin& row : function_rows()) {
    define(std::string(row.name), runtime_.make<Function>(&row, Value()));
  }
}

void Evaluator::define(const std::string& name, Value value) {
  const auto it = std::find(tree_.names.begin(), tree_.names.end(), name);
  if (it == tree_.names.end()) return;
  root_->variables[static_cast<int>(it - tree_.names.begin())] = std::move(value);
}

std::string Evaluator::run() {
  const Replaced scope(scope_, within(root_));
  for (const int name : tree_.assigned_first) scope_->variables[name] = Value();
  execute(tree_.body);
  return text_.take_bytes();
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  Flow flow = Flow::next;
  for (auto stmt = body.begin(); stmt != body.end() && flow == Flow::next; ++stmt) {
    flow = execute(**stmt);
  }
  return flow;
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
    case StmtKind::filter_block:
      return text_block(stmt);
    case StmtKind::loop:
      return run_loop(stmt);
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
    case StmtKind::generation: {
      // Its position in the text is known of what has been written for good; inside a macro that is
      // where the macro's text will begin.
      const Value said = call_macro(Macro(stmt, scope_), {});
      generations_.emplace_back(text_.bytes().size(), *length_of(runtime_, said));
      append_text(*out_, said);
      break;
    }
    case StmtKind::break_loop:
      return Flow::break_loop;
    case StmtKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

void Evaluator::write_block(const Value& text) {
  if (!text.is_text()) runtime_.fail_type("a block", "text", text);
  append_text(*out_, text);
}

void Evaluator::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::name) {
    scope_->variables[target.name] = value;
  } else if (target.kind == ExprKind::namespace_target) {
    const Value holder = look_up(target.name);
    const auto* space = holder.as<Namespace>();
    if (!space) runtime_.fail_type("an attribute's assignment", "a namespace", holder);
    space->attributes->set(runtime_, target.constant, value);
  } else {
    const Items items(runtime_, value);
    const size_t n = target.children.size(), n_given = items.view().size();
    if (n_given != n) runtime_.fail("expected {} values to unpack, got {}", n, n_given);
    for (size_t i = 0; i < n; ++i) assign(*target.children[i], items.view()[i]);
  }
}

// The text of the body, through filters where there are any, assigned or written.
Evaluator::Flow Evaluator::text_block(const Stmt& stmt) {
  Value text;
  {
    const Replaced scope(scope_, within(scope_));
    Builder written(runtime_);
    const Replaced out(out_, &written);
    const Flow flow = execute(stmt.body);
    if (flow != Flow::next) return flow;
    text = block_text_ = written.take();
    if (stmt.value) text = evaluate(*stmt.value);
  }
  if (stmt.target) {
    assign(*stmt.target, text);
  } else {
    write_block(text);
  }
  return Flow::next;
}

bool Loop::has(size_t n) {
  while (n_ready() < n && !rest.empty()) {
    const Value& item = rest.front();  // its test may look ahead in this loop itself
    rest = rest.subspan(1);
    if (evaluator.passes(*this, item)) ready.push_back(item);
  }
  return n_ready() >= n;
}

bool Loop::advance() {
  if (!has(1)) return false;
  before = std::exchange(current, ready[at++]);
  if (at == ready.size()) {
    ready.clear();
    at = 0;
  }
  ++index0;
  return true;
}

bool Loop::attribute(Runtime& runtime, const std::string& name, Value& value) {
  if (name == "index") {
    value = index0 + 1;
  } else if (name == "index0") {
    value = index0;
  } else if (name == "first") {
    value = index0 == 0;
  } else if (name == "last") {
    value = !has(1);
  } else if (name == "length" || name == "revindex" || name == "revindex0") {
    has(SIZE_MAX);
    const auto n_left = static_cast<int64_t>(n_ready());
    value = n_left + (name == "length" ? index0 + 1 : name == "revindex" ? 1 : 0);
  } else if (name == "previtem") {
    value = index0 == 0 ? runtime.undefined("there is no previous item") : before;
  } else if (name == "nextitem") {
    value = has(1) ? ready[at] : runtime.undefined("there is no next item");
  } else {
    runtime.fail("loop.{} is outside the supported subset", name);
  }
  return true;
}

bool Evaluator::passes(const Loop& loop, const Value& item) {
  if (!loop.stmt.test) return true;
  const Replaced scope(scope_, within(loop.scope));
  assign(*loop.stmt.target, item);
  return is_true(runtime_, evaluate(*loop.stmt.test));
}

Evaluator::Flow Evaluator::run_loop(const Stmt& stmt) {
  bool has_run = false;  // some iteration came to its end: what `else` asks
  {
    const Value items = evaluate(*stmt.value);
    const Items all(runtime_, items);
    auto* loop = runtime_.make<Loop>(*this, stmt, scope_, all.view());
    const Replaced scope(scope_, within(scope_));
    while (loop->advance()) {
      runtime_.charge(6);
      scope_->variables.clear();
      scope_->variables[kLoop] = loop;
      assign(*stmt.target, loop->current);
      const Flow flow = execute(stmt.body);
      if (flow == Flow::break_loop) break;
      has_run = has_run || flow == Flow::next;
    }
    loop->rest = {};
  }
  const Replaced scope(scope_, within(scope_));
  return has_run ? Flow::next : execute(stmt.else_body);  // its break is of the loop around
}

void Evaluator::bind(const Macro& macro, Arguments& arguments) {
  const Stmt& stmt = macro.stmt;
  const size_t n_given = arguments.positional.size(), n = stmt.parameters.size();
  if (n_given > n) {
    runtime_.fail("macro '{}' expected at most {} arguments, got {}", stmt.text, n, n_given);
  }
  const auto take = [&](const std::string& name, int number, const Expr* fallback) {
    auto& named = arguments.named;
    const auto it = std::find_if(named.begin(), named.end(),
                                 [&](const auto& one) { return one.first == name; });
    Value value;
    if (it != named.end()) {
      value = it->second;
      named.erase(it);
    } else {
      value = fallback ? evaluate(*fallback)
                       : runtime_.undefined("parameter '" + name + "' was not provided");
    }
    scope_->variables[number] = value;
  };
  bool has_caller = false;
  for (size_t i = 0; i < n; ++i) {
    const Parameter& parameter = stmt.parameters[i];
    has_caller = has_caller || parameter.name == kCaller;
    if (i < n_given) {
      scope_->variables[parameter.name] = arguments.positional[i];
    } else {
      take(parameter.text, parameter.name, parameter.fallback);
    }
  }
  if (stmt.uses_caller && !has_caller) take("caller", kCaller, nullptr);
  if (!arguments.named.empty()) {
    runtime_.fail("macro '{}' has no parameter '{}'", stmt.text, arguments.named[0].first);
  }
}

Value Evaluator::call_macro(const Macro& macro, Arguments arguments) {
  const Runtime::Depth depth(runtime_);
  runtime_.charge(8);
  const int line = runtime_.line;
  const Replaced scope(scope_, within(macro.scope));
  Builder written(runtime_);
  const Replaced out(out_, &written);
  bind(macro, arguments);
  execute(macro.stmt.body);
  runtime_.line = line;
  return written.take();
}

}  // namespace octet::jinja
