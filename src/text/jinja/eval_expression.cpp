#include "text/jinja/evaluator.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"

namespace octet::jinja {

Value Evaluator::look_up(int name) {
  std::optional<Value>* found = scope_->find(name);
  if (found != nullptr && *found) return **found;
  return runtime_.undefined("'" + tree_.names[static_cast<size_t>(name)] + "' is undefined");
}

Value Evaluator::evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::constant) {
    runtime_.charge(1);
    return expr.constant;
  }
  if (expr.kind == ExprKind::name) {
    runtime_.charge(1);
    return look_up(expr.name);
  }
  const Runtime::Depth depth(runtime_);
  runtime_.charge(2);
  runtime_.line = expr.line;
  return evaluate_compound(expr);
}

Value Evaluator::evaluate_compound(const Expr& expr) {
  const auto child = [&](size_t i) { return evaluate(*expr.children[i]); };
  switch (expr.kind) {
    case ExprKind::list:
      return make_sequence(expr, SequenceKind::list);
    case ExprKind::tuple:
      return make_sequence(expr, SequenceKind::tuple);
    case ExprKind::dict:
      return make_dict(expr);
    case ExprKind::attribute:
      return attribute_of(runtime_, child(0), expr.text);
    case ExprKind::item: {
      const Value of = child(0);
      return item_of(runtime_, of, child(1));
    }
    case ExprKind::slice:
      return make_slice(expr);
    case ExprKind::call:
      return call(expr);
    case ExprKind::filter:
      return filter(expr);
    case ExprKind::test:
      return test(expr);
    case ExprKind::negative:
      return negate(runtime_, child(0));
    case ExprKind::positive:
      return arithmetic(runtime_, Operator::add, int64_t{0}, child(0));
    case ExprKind::logical_not:
      return !is_true(runtime_, child(0));
    case ExprKind::logical_and: {
      Value left = child(0);
      return is_true(runtime_, left) ? child(1) : left;
    }
    case ExprKind::logical_or: {
      Value left = child(0);
      return is_true(runtime_, left) ? left : child(1);
    }
    case ExprKind::arithmetic: {
      const Value left = child(0);
      const Value right = child(1);
      runtime_.line = expr.line;
      return arithmetic(runtime_, expr.op, left, right);
    }
    case ExprKind::comparison:
      return compare_chain(expr);
    case ExprKind::concat:
      return concatenate(expr);
    case ExprKind::conditional:
      if (is_true(runtime_, child(1))) return child(0);
      if (expr.children[2]) return child(2);
      return runtime_.undefined("the inline if is false and has no else");
    default:
      break;
  }
  runtime_.fail("a namespace can only be assigned to here");
}

Value Evaluator::make_sequence(const Expr& expr, SequenceKind kind) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) items.push_back(evaluate(*child));
  return runtime_.list(std::move(items), kind);
}

Value Evaluator::make_dict(const Expr& expr) {
  auto* dict = runtime_.dict();
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    const Value key = evaluate(*expr.children[i]);
    dict->set(runtime_, key, evaluate(*expr.children[i + 1]));
  }
  return dict;
}

Value Evaluator::make_slice(const Expr& expr) {
  const Value of = evaluate(*expr.children[0]);
  const auto bound = [&](size_t i) -> std::optional<int64_t> {
    if (!expr.children[i]) return std::nullopt;
    const Value value = evaluate(*expr.children[i]);
    if (value.is_none()) return std::nullopt;
    if (!value.is_integral()) {
      runtime_.fail("a slice expected integers or none, got {}", type_name(value));
    }
    return value.integral();
  };
  SliceBounds bounds;
  bounds.start = bound(1);
  bounds.stop = bound(2);
  bounds.step = bound(3);
  return slice_of(runtime_, of, bounds);
}

Value Evaluator::concatenate(const Expr& expr) {
  std::string joined;
  for (const ExprPtr& child : expr.children) {
    joined += str(runtime_, evaluate(*child));
    check_size(runtime_, joined);
  }
  return runtime_.text(std::move(joined));
}

bool Evaluator::compare_chain(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    runtime_.line = expr.line;
    if (!compare(runtime_, expr.ops[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Arguments Evaluator::arguments_of(const CallArguments& from) {
  Arguments arguments;
  for (const ExprPtr& value : from.positional) arguments.positional.push_back(evaluate(*value));
  if (from.star) {
    const Value values = evaluate(*from.star);
    for (const Value& value : to_list(runtime_, values)->items) {
      arguments.positional.push_back(value);
    }
  }
  for (const auto& [key, value] : from.named) arguments.named.emplace_back(key, evaluate(*value));
  if (from.star_star) {
    const Value values = evaluate(*from.star_star);
    const auto* dict = values.as<Dict>();
    if (dict == nullptr) runtime_.fail("** expected a dict, got {}", type_name(values));
    for (const auto& [key, value] : dict->entries) {
      if (!key.is_text()) runtime_.fail("** expected text as keys, got {}", type_name(key));
      arguments.named.emplace_back(key.text(), value);
    }
  }
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    runtime_.charge(i);
    for (size_t j = 0; j < i; ++j) {
      if (arguments.named[i].first == arguments.named[j].first) {
        runtime_.fail("expected argument '{}' once, got it twice", arguments.named[i].first);
      }
    }
  }
  return arguments;
}

Value Evaluator::call(const Expr& expr, const Value* caller) {
  const Expr& callee = *expr.children[0];
  // Methods are called without being made into values first.
  if (callee.kind == ExprKind::attribute && caller == nullptr) {
    const Value self = evaluate(*callee.children[0]);
    const bool is_own = self.object() != nullptr && self.as<Namespace>();
    const Method method = is_own ? nullptr : find_method(self, callee.text);
    if (method != nullptr) {
      Arguments arguments = arguments_of(expr.arguments);
      runtime_.line = expr.line;
      return method(runtime_, self, arguments);
    }
    const Value target = attribute_of(runtime_, self, callee.text);
    Arguments arguments = arguments_of(expr.arguments);
    runtime_.line = expr.line;
    if (target.is_undefined()) runtime_.fail_undefined(target);
    if (target.object() == nullptr) {
      runtime_.fail("'{}' object is not callable", type_name(target));
    }
    return target.object()->call(runtime_, arguments);
  }
  const Value target = evaluate(callee);
  Arguments arguments = arguments_of(expr.arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  runtime_.line = expr.line;
  if (target.is_undefined()) runtime_.fail_undefined(target);
  if (target.object() == nullptr) runtime_.fail("'{}' object is not callable", type_name(target));
  return target.object()->call(runtime_, arguments);
}

Value Evaluator::filter(const Expr& expr) {
  const Value value = expr.children[0] ? evaluate(*expr.children[0]) : block_text_;
  if (expr.filter == nullptr) fail_unknown_filter(runtime_, expr.text);
  Arguments arguments = arguments_of(expr.arguments);
  runtime_.line = expr.line;
  return expr.filter(runtime_, value, arguments);
}

bool Evaluator::test(const Expr& expr) {
  const Value value = evaluate(*expr.children[0]);
  if (expr.test == nullptr) fail_unknown_test(runtime_, expr.text);
  Arguments arguments = arguments_of(expr.arguments);
  runtime_.line = expr.line;
  return expr.test(runtime_, value, arguments);
}

}  // namespace octet::jinja
