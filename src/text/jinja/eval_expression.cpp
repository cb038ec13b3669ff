#include "text/jinja/evaluator.h"
#include "text/jinja/print.h"

namespace octet::jinja {

Value Evaluator::look_up(int name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    runtime_.charge(1);
    const auto it = scope->variables.find(name);
    if (it != scope->variables.end()) return it->second;
  }
  return runtime_.undefined("'" + tree_.names[static_cast<size_t>(name)] + "' is undefined");
}

Value Evaluator::evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::constant) {
    runtime_.charge(1);
    return expr.constant;
  }
  if (expr.kind == ExprKind::name) return look_up(expr.name);
  const Runtime::Depth depth(runtime_);
  runtime_.charge(2);
  runtime_.line = expr.line;
  Value value = evaluate_compound(expr);
  return value;
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
      return make_dict(expr);
    case ExprKind::attribute:
      return attribute_of(runtime_, child(0), expr.constant);
    case ExprKind::item: {
      const Value of = child(0);
      return item_of(runtime_, of, child(1));
    }
    case ExprKind::slice:
      return make_slice(expr);
    case ExprKind::call:
      return call(expr);
    case ExprKind::filter:
      return apply(expr, kFilter, expr.children[0] ? child(0) : block_text_);
    case ExprKind::test:
      return apply(expr, kTest, child(0));
    case ExprKind::negative:
    case ExprKind::positive:
      return signed_value(expr.kind, child(0));
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
      return arithmetic(runtime_, expr.op, left, right);
    }
    case ExprKind::comparison:
      return compare_chain(expr);
    case ExprKind::concat: {
      Builder out(runtime_);
      for (const ExprPtr& part : expr.children) append_text(out, evaluate(*part));
      return out.take();
    }
    case ExprKind::conditional:
      if (is_true(runtime_, child(1))) return child(0);
      if (expr.children[2]) return child(2);
      return runtime_.undefined("the inline if is false and has no else");
    default:
      break;
  }
  runtime_.fail("a namespace can only be assigned to here");
}

Value Evaluator::signed_value(ExprKind kind, const Value& operand) {
  const Operator op = kind == ExprKind::negative ? Operator::sub : Operator::add;
  if (operand.is(Kind::real) && op == Operator::sub) return -operand.real();
  return arithmetic(runtime_, op, int64_t{0}, operand);
}

Value Evaluator::make_dict(const Expr& expr) {
  auto* dict = runtime_.make<Dict>();
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    const Value key = evaluate(*expr.children[i]);
    dict->set(runtime_, key, evaluate(*expr.children[i + 1]));
  }
  return dict;
}

Value Evaluator::make_slice(const Expr& expr) {
  const Value of = evaluate(*expr.children[0]);
  const auto bound = [&](size_t i) -> std::optional<int64_t> {
    const Value value = expr.children[i] ? evaluate(*expr.children[i]) : Value(None{});
    if (value.is_none()) return std::nullopt;
    return integer_of(runtime_, value, "a slice");
  };
  SliceBounds bounds;
  bounds.start = bound(1);
  bounds.stop = bound(2);
  bounds.step = bound(3);
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
  runtime_.line = expr.line;
  if (expr.builtin == nullptr) fail_unknown(runtime_, use, expr.text);
  const Arguments arguments = arguments_of(expr);
  runtime_.line = expr.line;
  return invoke(runtime_, *expr.builtin, value, arguments);
}

Arguments Evaluator::arguments_of(const Expr& expr) {
  Arguments arguments;
  const auto add = [&](const std::string& key, const Value& value) {
    runtime_.charge(1 + arguments.named.size() / 4);
    for (const auto& [known, other] : arguments.named) {
      if (known == key) runtime_.fail("expected argument '{}' once, got it twice", key);
    }
    arguments.named.emplace_back(key, value);
  };
  for (const auto& [key, value_expr] : expr.arguments) {
    const Value value = evaluate(*value_expr);
    if (key.empty()) {
      arguments.positional.push_back(value);
    } else if (key == "*") {
      for (const Value& item : Items(runtime_, value)) arguments.positional.push_back(item);
    } else if (key == "**") {
      const auto* dict = value.as<Dict>();
      if (dict == nullptr) runtime_.fail("** expected a dict, got {}", type_name(value));
      for (const auto& [name, held] : dict->entries) {
        if (!name.is_text()) runtime_.fail("** expected text as keys, got {}", type_name(name));
        add(runtime_.read(name), held);
      }
    } else {
      add(key, value);
    }
  }
  return arguments;
}

Value Evaluator::call(const Expr& expr, const Value* caller) {
  const Value target = evaluate(*expr.children[0]);
  Arguments arguments = arguments_of(expr);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  runtime_.line = expr.line;
  return call(target, std::move(arguments));
}

Value Evaluator::call(const Value& target, Arguments arguments) {
  if (target.is_undefined()) runtime_.fail_undefined(target);
  if (const auto* function = target.as<Function>()) {
    return invoke(runtime_, *function->row, function->self, arguments);
  }
  if (const auto* macro = target.as<Macro>()) return call_macro(*macro, std::move(arguments));
  const auto* loop = target.as<Loop>();
  if (loop == nullptr) runtime_.fail("'{}' object is not callable", type_name(target));
  if (!loop->stmt.is_recursive) runtime_.fail("a loop needs 'recursive' to be called");
  if (arguments.positional.size() != 1) runtime_.fail("loop() expected one argument");
  return call_loop(*loop, arguments.positional[0]);
}

}  // namespace octet::jinja
