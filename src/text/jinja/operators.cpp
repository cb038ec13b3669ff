// Comparison and arithmetic.
#include <algorithm>
#include <cmath>
#include <compare>

#include "text/jinja/operations.h"

namespace octet::jinja {

void fail_overflow(Runtime& runtime) {
  runtime.fail("integers beyond 64 bits are outside the supported subset");
}

namespace {

[[noreturn]] void fail_operands(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  runtime.check_defined(a);
  runtime.check_defined(b);
  if (op == Operator::mod && a.is_text()) {
    runtime.fail("text % values is outside the supported subset");
  }
  runtime.fail("unsupported operand types: '{}' and '{}'", type_name(a), type_name(b));
}

// Exact for every integer and every double.
long double exact(const Value& value) {
  return value.is(Kind::real) ? static_cast<long double>(value.real())
                              : static_cast<long double>(value.integral());
}

bool is_equal(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::Depth depth(runtime);
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return exact(a) == exact(b);
  if (a.kind() != b.kind()) return false;
  if (a.is_text()) return a.n_bytes() == b.n_bytes() && runtime.read(a) == runtime.read(b);
  if (a.object() == b.object()) return true;  // and undefined, none
  const auto *x = a.as<Sequence>(), *y = b.as<Sequence>();
  const auto are_equal = [&](const Value& one, const Value& other) {
    return is_equal(runtime, one, other);
  };
  if (x && y) {
    return x->type == y->type && std::equal(x->items.begin(), x->items.end(), y->items.begin(),
                                            y->items.end(), are_equal);
  }
  const auto *m = a.as<Range>(), *n = b.as<Range>();
  if (m && n) {
    return m->length == n->length &&
           (m->length == 0 || (m->start == n->start && (m->length == 1 || m->step == n->step)));
  }
  const auto *from = a.as<Dict>(), *to = b.as<Dict>();
  return from && to && from->entries.size() == to->entries.size() &&
         std::all_of(from->entries.begin(), from->entries.end(), [&](const auto& entry) {
           const Value* other = to->find(runtime, entry.first);
           return other && are_equal(entry.second, *other);
         });
}

std::partial_ordering order(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  const Runtime::Depth depth(runtime);
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return exact(a) <=> exact(b);
  // The order of bytes is that of code points.
  if (a.is_text() && b.is_text()) return runtime.read(a) <=> runtime.read(b);
  const auto *x = a.as<Sequence>(), *y = b.as<Sequence>();
  if (!x || !y || x->type != y->type || !x->is_list()) fail_operands(runtime, op, a, b);
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    if (is_equal(runtime, x->items[i], y->items[i])) continue;
    return order(runtime, op, x->items[i], y->items[i]);
  }
  return x->items.size() <=> y->items.size();
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) runtime.fail_type("'in <text>'", "text", item);
    const std::string &text = runtime.read(container), &part = runtime.read(item);
    return find_text(runtime, text, part) != std::string::npos;
  }
  if (const auto* dict = container.as<Dict>()) return dict->find(runtime, item);
  const Items items(runtime, container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& value) { return is_equal(runtime, value, item); });
}

// Python's divmod.
std::pair<double, double> divide(double a, double b) {
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  const double floor = std::floor(quotient), whole = quotient - floor > 0.5 ? floor + 1 : floor;
  return {quotient == 0 ? std::copysign(0.0, a / b) : whole,
          rest == 0 ? std::copysign(0.0, b) : rest};
}

Value real_arithmetic(Operator op, double a, double b) {
  return op == Operator::add         ? a + b
         : op == Operator::sub       ? a - b
         : op == Operator::mul       ? a * b
         : op == Operator::div       ? a / b
         : op == Operator::floor_div ? divide(a, b).first
                                     : divide(a, b).second;
}

Value integer_arithmetic(Runtime& runtime, Operator op, int64_t a, int64_t b) {
  __extension__ using Wide = __int128;
  const Wide x = a, y = b;
  Wide result = 0;
  switch (op) {
    case Operator::add:
      result = x + y;
      break;
    case Operator::sub:
      result = x - y;
      break;
    case Operator::mul:
      result = x * y;
      break;
    case Operator::div:
      return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
    default:
      result = x / y - (x % y != 0 && (a < 0) != (b < 0) ? 1 : 0);
      if (op == Operator::mod) result = x - result * y;
  }
  if (result != static_cast<int64_t>(result)) fail_overflow(runtime);
  return static_cast<int64_t>(result);
}

Value repeat(Runtime& runtime, const Value& text, int64_t times) {
  Builder out(runtime);
  for (int64_t i = 0; i < times && text.n_bytes() > 0; ++i) {
    runtime.charge(1);
    out.append(runtime.read(text));
  }
  return out.take(text.is_markup());
}

}  // namespace

bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::eq || op == Operator::ne)
    return is_equal(runtime, a, b) == (op == Operator::eq);
  if (op >= Operator::in) return contains(runtime, b, a) == (op == Operator::in);
  const std::partial_ordering by = order(runtime, op, a, b);
  return op == Operator::lt   ? by < 0
         : op == Operator::le ? by <= 0
         : op == Operator::gt ? by > 0
                              : by >= 0;
}

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (op >= Operator::div && b.number() == 0) runtime.fail("division by zero");
    if (!a.is_integral() || !b.is_integral()) return real_arithmetic(op, a.number(), b.number());
    return integer_arithmetic(runtime, op, a.integral(), b.integral());
  }
  const auto *x = a.as<Sequence>(), *y = b.as<Sequence>();
  if (op == Operator::add && a.is_text() && b.is_text()) {
    const bool is_markup = a.is_markup() || b.is_markup();
    Builder out(runtime);
    append_text(out, is_markup ? escaped(runtime, a) : a);
    append_text(out, is_markup ? escaped(runtime, b) : b);
    return out.take(is_markup);
  }
  if (op == Operator::add && x && y && x->type == y->type && x->is_list()) {
    std::vector<Value> items = x->items;
    items.insert(items.end(), y->items.begin(), y->items.end());
    return runtime.list(std::move(items), x->type);
  }
  if (op == Operator::mul && a.is_text() && b.is_integral())
    return repeat(runtime, a, b.integral());
  if (op == Operator::mul && b.is_text() && a.is_integral())
    return repeat(runtime, b, a.integral());
  fail_operands(runtime, op, a, b);
}

}  // namespace octet::jinja
