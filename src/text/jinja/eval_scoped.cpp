// Loops and macros.
#include <algorithm>

#include "text/jinja/evaluator.h"

namespace octet::jinja {

bool Loop::peek() {
  while (stmt.test && n_passed == 0 && !rest.empty()) {
    if (evaluator.passes(*this, rest[0])) {
      n_passed = 1;
    } else {
      rest = rest.subspan(1);
    }
  }
  return !rest.empty();
}

bool Loop::advance() {
  if (!peek()) return false;
  before = std::exchange(current, rest[0]);
  rest = rest.subspan(1);
  n_passed -= std::min<size_t>(n_passed, 1);
  ++index0;
  return true;
}

int64_t Loop::length() {
  if (stmt.test && n_passed < rest.size()) {
    std::vector<Value> all(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(n_passed));
    for (const Value& item : rest.subspan(n_passed)) {
      if (evaluator.passes(*this, item)) all.push_back(item);
    }
    evaluator.runtime().reserve_values(all.size());
    passed = std::move(all);
    rest = passed;
    n_passed = rest.size();
  }
  return index0 + 1 + static_cast<int64_t>(rest.size());
}

bool Loop::attribute(Runtime& runtime, const std::string& name, Value& value) {
  if (name == "index" || name == "index0") {
    value = index0 + (name == "index" ? 1 : 0);
  } else if (name == "first") {
    value = index0 == 0;
  } else if (name == "last") {
    value = !peek();
  } else if (name == "length") {
    value = length();
  } else if (name == "revindex" || name == "revindex0") {
    value = length() - index0 - (name == "revindex" ? 0 : 1);
  } else if (name == "depth" || name == "depth0") {
    value = int64_t{depth0} + (name == "depth" ? 1 : 0);
  } else if (name == "previtem") {
    value = index0 == 0 ? runtime.undefined("there is no previous item") : before;
  } else if (name == "nextitem") {
    value = peek() ? rest[0] : runtime.undefined("there is no next item");
  } else {
    return false;
  }
  return true;
}

bool Macro::attribute(Runtime& runtime, const std::string& name, Value&) {
  runtime.fail("attribute '{}' of a macro is outside the supported subset", name);
}

namespace {

Value cycle(Call& call) {
  const auto& all = call.given.positional;
  if (all.empty()) call.runtime.fail("no items for cycling given");
  return all[static_cast<size_t>(call.self.as<Loop>()->index0) % all.size()];
}

Value changed(Call& call) {
  auto& last = call.self.as<Loop>()->last_changed;
  const auto& now = call.given.positional;
  const bool is_same = last && std::equal(now.begin(), now.end(), last->begin(), last->end(),
                                          [&](const Value& a, const Value& b) {
                                            return is_equal(call.runtime, a, b);
                                          });
  last = now;
  return !is_same;
}

constexpr Builtin kLoopRows[] = {
    {"cycle", kOfLoop, "*", 0, cycle},
    {"changed", kOfLoop, "*", 0, changed},
};

}  // namespace

std::span<const Builtin> loop_rows() {
  return kLoopRows;
}

bool Evaluator::passes(const Loop& loop, const Value& item) {
  const Within within(*this, loop.scope);
  assign(*loop.stmt.target, item);
  return is_true(runtime_, evaluate(*loop.stmt.test));
}

void Evaluator::run_loop(const Stmt& stmt, const Value& items, int depth) {
  bool has_run = false;  // some iteration came to its end: what `else` asks
  {
    auto* loop = runtime_.make<Loop>(*this, stmt, depth);
    loop->scope = scope_;
    const Items all(runtime_, items);
    loop->rest = all.view();
    const Within within(*this);
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
  const Within within(*this);
  if (!has_run) execute(stmt.else_body);
}

Value Evaluator::call_loop(const Loop& loop, const Value& items) {
  const Runtime::Depth guard(runtime_);
  const Within within(*this, loop.scope);
  Captured captured(*this);
  run_loop(loop.stmt, items, loop.depth0 + 1);
  return captured.take();
}

void Evaluator::bind(const Macro& macro, Arguments& arguments, Scope& scope) {
  const Stmt& stmt = macro.stmt;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto it = std::find_if(arguments.named.begin(), arguments.named.end(),
                                 [&](const auto& named) { return named.first == name; });
    if (it == arguments.named.end()) return std::nullopt;
    Value value = it->second;
    arguments.named.erase(it);
    return value;
  };
  const size_t n_given = arguments.positional.size();
  if (n_given > stmt.parameters.size()) {
    runtime_.fail("macro '{}' expected at most {} arguments, got {}", stmt.text,
                  stmt.parameters.size(), n_given);
  }
  bool has_caller = false;
  for (size_t i = 0; i < stmt.parameters.size(); ++i) {
    const Parameter& parameter = stmt.parameters[i];
    has_caller = has_caller || parameter.name == kCaller;
    std::optional<Value> value;
    if (i < n_given) {
      value = arguments.positional[i];
    } else if (!(value = take_named(parameter.text))) {
      value = parameter.fallback
                  ? evaluate(*parameter.fallback)
                  : runtime_.undefined("parameter '" + parameter.text + "' was not provided");
    }
    scope.variables[parameter.name] = *value;
  }
  if (stmt.uses_caller && !has_caller) {
    const auto caller = take_named("caller");
    scope.variables[kCaller] = caller ? *caller : runtime_.undefined("no caller defined");
  }
  if (!arguments.named.empty()) {
    runtime_.fail("macro '{}' has no parameter '{}'", stmt.text, arguments.named[0].first);
  }
}

Value Evaluator::call_macro(const Macro& macro, Arguments arguments) {
  const Runtime::Depth depth(runtime_);
  runtime_.charge(8);
  const int line = runtime_.line;
  const Within within(*this, macro.scope);
  Captured captured(*this);
  bind(macro, arguments, *scope_);
  execute(macro.stmt.body);
  runtime_.line = line;
  return captured.take();
}

}  // namespace octet::jinja
