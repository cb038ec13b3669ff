#include "text/jinja/evaluator.h"

namespace octet::jinja {

Value Evaluator::look_up(int name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    runtime_.charge(1);
    const auto it = scope->variables.find(name);
    if (it != scope->variables.end()) return it->second;
  }
  return runtime_.undefined("'" + tree_.names[static_cast<size_t>(name)] + "' is undefined");
}

Value Evaluator::evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::name) return look_up(expr.name);
  runtime_.charge(expr.kind == ExprKind::constant ? 1 : 2);
  if (expr.kind == ExprKind::constant) return expr.constant;
  const Runtime::Depth depth(runtime_);
  runtime_.line = expr.line;
  return evaluate_compound(expr);
}

Value Evaluator::evaluate_compound(const Expr& expr) {
  const auto child = [&](size_t i) { return evaluate(*expr.children[i]); };
  switch (expr.kind) {
    case ExprKind::list:
    case ExprKind::tuple: {
      std::vector<Value> items;
      for (const ExprPtr& item : expr.children) items.push_back(evaluate(*item));
      return runtime_.list(std::move(items),
                           expr.kind == ExprKind::list ? Type::list : Type::tuple);
    }
    case ExprKind::dict:
      return dict(expr);
    case ExprKind::attribute:
    case ExprKind::item: {
      const Value of = child(0), key = child(1);
      const auto first = expr.kind == ExprKind::item ? Access::item : Access::attribute;
      return member_of(runtime_, first, of, key);
    }
    case ExprKind::slice:
      return slice(expr);
    case ExprKind::call:
      return call(expr);
    case ExprKind::filter:
      return apply(expr, kFilter, expr.children[0] ? child(0) : block_text_);
    case ExprKind::test:
      return apply(expr, kTest, child(0));
    case ExprKind::negative: {
      const Value operand = child(0);
      if (operand.is(Kind::real)) return -operand.real();
      return arithmetic(runtime_, Operator::sub, int64_t{0}, operand);
    }
    case ExprKind::logical_not:
      return !is_true(runtime_, child(0));
    case ExprKind::logical_and:
    case ExprKind::logical_or: {
      Value left = child(0);
      const bool is_or = expr.kind == ExprKind::logical_or;
      return is_true(runtime_, left) == is_or ? left : child(1);
    }
    case ExprKind::arithmetic: {
      const Value left = child(0), right = child(1);
      runtime_.line = expr.line;
      return arithmetic(runtime_, expr.ops[0], left, right);
    }
    case ExprKind::comparison:
      return compare_chain(expr);
    case ExprKind::concat: {
      Builder out(runtime_);
      for (const ExprPtr& part : expr.children) append_text(out, evaluate(*part));
      return out.take();
    }
    default:  // conditional
      if (is_true(runtime_, child(1))) return child(0);
      if (expr.children[2]) return child(2);
      return runtime_.undefined("the inline if is false and has no else");
  }
}

Value Evaluator::dict(const Expr& expr) {
  auto* dict = runtime_.make<Dict>();
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    const Value key = evaluate(*expr.children[i]);
    dict->set(runtime_, key, evaluate(*expr.children[i + 1]));
  }
  return dict;
}

Value Evaluator::slice(const Expr& expr) {
  const Value of = evaluate(*expr.children[0]);
  const auto bound = [&](size_t i) -> std::optional<int64_t> {
    const Value value = expr.children[i] ? evaluate(*expr.children[i]) : Value(None{});
    if (value.is_none()) return std::nullopt;
    return integer_of(runtime_, value, "a slice");
  };
  const SliceBounds bounds{bound(1), bound(2), bound(3)};
  return slice_of(runtime_, of, bounds);
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

Value Evaluator::apply(const Expr& expr, Use use, const Value& value) {
  const Arguments arguments = arguments_of(expr);
  runtime_.line = expr.line;
  if (!expr.builtin) fail_unknown(runtime_, use, expr.text);
  return invoke(runtime_, *expr.builtin, value, arguments);
}

Arguments Evaluator::arguments_of(const Expr& expr) {
  constexpr size_t kMaxArguments = 1000;
  Arguments arguments;
  for (const auto& [key, argument] : expr.arguments) {
    const Value value = evaluate(*argument);
    if (key.empty()) {
      arguments.positional.push_back(value);
    } else if (key == kStar) {
      const Items items(runtime_, value);
      const size_t n = arguments.positional.size() + items.view().size();
      if (n > kMaxArguments)  // their copies are not counted as memory
        runtime_.fail("a call takes at most {} arguments, got {}", kMaxArguments, n);
      arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
    } else {
      arguments.named.emplace_back(key, value);
    }
  }
  return arguments;
}

Value Evaluator::call(const Expr& expr, const Value* caller) {
  const Value target = evaluate(*expr.children[0]);
  Arguments arguments = arguments_of(expr);
  if (caller) arguments.named.emplace_back("caller", *caller);
  runtime_.line = expr.line;
  if (const auto* macro = target.as<Macro>()) return call_macro(*macro, std::move(arguments));
  const auto* function = target.as<Function>();
  if (!function) runtime_.fail_type("a call", "a macro, a function or a method", target);
  return invoke(runtime_, *function->row, function->self, arguments);
}

}  // namespace octet::jinja
