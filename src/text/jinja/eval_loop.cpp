#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/scopes.h"
#include "text/jinja/within.h"

namespace octet::jinja {

bool Loop::peek() {
  if (!ahead.empty()) return true;
  Value item;
  if (!next(item)) return false;
  ahead.push_back(std::move(item));
  return true;
}

bool Loop::advance() {
  if (!peek()) return false;
  before = std::exchange(current, ahead.back());
  ahead.pop_back();
  ++index0;
  return true;
}

int64_t Loop::length() {
  if (known_length) return *known_length;
  known_length = length_of(runtime, items);
  if (known_length) return *known_length;
  std::vector<Value> rest;  // what has no length is walked to its end
  std::reverse(ahead.begin(), ahead.end());
  rest.swap(ahead);
  for (Value item; next(item);) {
    rest.push_back(item);
    if (rest.size() % 1024 == 0) runtime.reserve_values(1024);
  }
  known_length = index0 + 1 + static_cast<int64_t>(rest.size());
  ahead.assign(rest.rbegin(), rest.rend());
  return *known_length;
}

Value Loop::call(Runtime& of, Arguments& arguments) {
  const Bound bound(of, arguments, "loop", {"iterable"}, 1);
  if (!recurse) of.fail("a loop needs 'recursive' to be called");
  return recurse(bound[0]);
}

std::string Loop::printed() const {
  return "<LoopContext>";
}

bool Loop::attribute(Runtime& of, const std::string& name, Value& value) {
  if (name == "index") {
    value = index0 + 1;
  } else if (name == "index0") {
    value = index0;
  } else if (name == "first") {
    value = index0 == 0;
  } else if (name == "last") {
    value = !peek();
  } else if (name == "length") {
    value = length();
  } else if (name == "revindex") {
    value = length() - index0;
  } else if (name == "revindex0") {
    value = length() - index0 - 1;
  } else if (name == "depth") {
    value = int64_t{depth0 + 1};
  } else if (name == "depth0") {
    value = int64_t{depth0};
  } else if (name == "previtem") {
    value = index0 == 0 ? of.undefined("there is no previous item") : before;
  } else if (name == "nextitem") {
    value = peek() ? ahead.back() : of.undefined("there is no next item");
  } else if (name == "cycle") {
    value = of.function("cycle", [this](Runtime& at, Arguments& arguments) {
      refuse_keywords(at, arguments, "cycle");
      const auto& all = arguments.positional;
      if (all.empty()) at.fail("no items for cycling given");
      return all[static_cast<size_t>(index0) % all.size()];
    });
  } else if (name == "changed") {
    value = of.function("changed", [this](Runtime& at, Arguments& arguments) -> Value {
      refuse_keywords(at, arguments, "changed");
      const auto& now = arguments.positional;
      const bool is_same =
          last_changed &&
          std::equal(now.begin(), now.end(), last_changed->begin(), last_changed->end(),
                     [&](const Value& a, const Value& b) { return is_equal(at, a, b); });
      last_changed = now;
      return !is_same;
    });
  } else {
    return false;
  }
  return true;
}

// The items that the loop's `if` lets through.
Next Evaluator::tested(const Stmt& stmt, const Value& items) {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  enter(*scope, stmt.test_scope);
  return [this, &stmt, scope, next = iterate(runtime_, items)](Value& out) {
    while (next(out)) {
      const Within within(*this, scope);
      assign(*stmt.target, out);
      if (!is_true(runtime_, evaluate(*stmt.test))) continue;
      if (stmt.target->kind == ExprKind::tuple) out = evaluate(*stmt.target);
      return true;
    }
    return false;
  };
}

Evaluator::Flow Evaluator::loop(const Stmt& stmt) {
  const Value items = evaluate(*stmt.value);
  if (!stmt.is_recursive) {
    run_loop(stmt, items, 0);
    return Flow::next;
  }
  Value text;
  {
    Captured captured(*this);
    run_loop(stmt, items, 0);
    text = captured.take();
  }
  write(text);
  return Flow::next;
}

Value Evaluator::call_loop(const Stmt& stmt, const ScopePtr& scope, const Value& items, int depth) {
  const Runtime::Depth guard(runtime_);
  const Within within(*this, scope);
  Captured captured(*this);
  run_loop(stmt, items, depth);
  return captured.take();
}

void Evaluator::run_loop(const Stmt& stmt, const Value& items, int depth) {
  const bool has_run = run_items(stmt, items, depth);
  if (has_run || stmt.else_body.empty()) return;
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  enter(*scope, stmt.else_scope);
  const Within within(*this, scope);
  execute(stmt.else_body);
}

// True where some iteration came to its end: what `else` asks.
bool Evaluator::run_items(const Stmt& stmt, const Value& items, int depth) {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  auto* loop = runtime_.make<Loop>(runtime_);
  loop->next = stmt.test ? tested(stmt, items) : iterate(runtime_, items);
  if (!stmt.test) loop->items = items;
  if (stmt.test) loop->items = runtime_.iterator(Next());
  loop->depth0 = depth;
  if (stmt.is_recursive) {
    loop->recurse = [this, &stmt, outer = scope_, depth](const Value& inner) {
      return call_loop(stmt, outer, inner, depth + 1);
    };
  }
  if (stmt.uses_loop) scope->set(kLoop, Value(loop));
  bool has_run = false;
  const Within within(*this, scope);
  while (loop->advance()) {
    runtime_.charge(1);
    assign(*stmt.target, loop->current);
    if (stmt.uses_loop) scope->set(kLoop, Value(loop));
    enter(*scope, stmt.scope);
    const Flow flow = execute(stmt.body);
    if (flow == Flow::break_loop) break;
    has_run = has_run || flow == Flow::next;
  }
  return has_run;
}

}  // namespace octet::jinja
