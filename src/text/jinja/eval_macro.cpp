#include <algorithm>

#include "text/jinja/evaluator.h"
#include "text/jinja/print.h"
#include "text/jinja/scopes.h"
#include "text/jinja/within.h"

namespace octet::jinja {
namespace {

std::optional<Value> take_named(Arguments& arguments, std::string_view name) {
  const auto it = std::find_if(arguments.named.begin(), arguments.named.end(),
                               [&](const auto& named) { return named.first == name; });
  if (it == arguments.named.end()) return std::nullopt;
  Value value = it->second;
  arguments.named.erase(it);
  return value;
}

}  // namespace

std::string Macro::printed() const {
  return stmt.kind == StmtKind::macro ? "<Macro '" + stmt.text + "'>" : "<Macro None>";
}

bool Macro::attribute(Runtime& runtime, const std::string& name, Value& value) {
  if (name == "name") {
    value = stmt.kind == StmtKind::macro ? runtime.text(stmt.text) : Value(None{});
  } else if (name == "arguments") {
    std::vector<Value> names;
    for (const Parameter& parameter : stmt.parameters)
      names.push_back(runtime.text(parameter.text));
    value = runtime.tuple(std::move(names));
  } else if (name == "caller" || name == "catch_kwargs" || name == "catch_varargs") {
    value = name == "caller"         ? stmt.uses_caller
            : name == "catch_kwargs" ? stmt.uses_kwargs
                                     : stmt.uses_varargs;
  } else {
    return false;
  }
  return true;
}

void Evaluator::bind(const Macro& macro, Arguments& arguments, Scope& scope) {
  const Stmt& stmt = macro.stmt;
  const size_t n = stmt.parameters.size();
  const size_t n_given = std::min(n, arguments.positional.size());
  bool has_caller = false;
  for (size_t i = 0; i < n; ++i) {
    const Parameter& parameter = stmt.parameters[i];
    has_caller = has_caller || parameter.name == kCaller;
    scope.set(parameter.name, i < n_given ? std::optional(arguments.positional[i])
                                          : take_named(arguments, parameter.text));
  }
  if (stmt.uses_caller && !has_caller) {
    const auto caller = take_named(arguments, "caller");
    scope.set(kCaller, caller ? *caller : runtime_.undefined("no caller defined"));
  }
  if (stmt.uses_kwargs) {
    auto* rest = runtime_.dict();
    for (const auto& [key, value] : arguments.named) rest->set(runtime_, runtime_.text(key), value);
    scope.set(kKwargs, Value(rest));
  } else if (!arguments.named.empty()) {
    runtime_.fail("macro '{}' has no parameter '{}'", stmt.text, arguments.named[0].first);
  }
  if (stmt.uses_varargs) {
    const auto begin = arguments.positional.begin() + static_cast<ptrdiff_t>(n_given);
    scope.set(kVarargs, runtime_.tuple(std::vector<Value>(begin, arguments.positional.end())));
  } else if (arguments.positional.size() > n) {
    runtime_.fail("macro '{}' expected at most {} arguments, got {}", stmt.text, n,
                  arguments.positional.size());
  }
}

Value Evaluator::call_macro(const Macro& macro, Arguments& arguments) {
  const Runtime::Depth depth(runtime_);
  auto scope = std::make_shared<Scope>();
  scope->parent = macro.scope;
  bind(macro, arguments, *scope);
  const int line = runtime_.line;
  enter(*scope, macro.stmt.scope);
  const Within within(*this, scope);
  Captured captured(*this);
  for (const Parameter& parameter : macro.stmt.parameters) {
    std::optional<Value>* held = scope->find(parameter.name);
    if (*held) continue;
    Value value = parameter.fallback
                      ? evaluate(*parameter.fallback)
                      : runtime_.undefined("parameter '" + parameter.text + "' was not provided");
    scope->set(parameter.name, std::move(value));
  }
  execute(macro.stmt.body);
  runtime_.line = line;
  return captured.take();
}

}  // namespace octet::jinja
