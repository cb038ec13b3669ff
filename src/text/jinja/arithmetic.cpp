#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"

namespace octet::jinja {
namespace {

[[noreturn]] void fail_types(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) runtime.fail_undefined(a);
  if (b.is_undefined()) runtime.fail_undefined(b);
  if (op == Operator::add && a.is_text()) {
    runtime.fail("can only concatenate str (not \"{}\") to str", type_name(b));
  }
  runtime.fail("unsupported operand types for {}: '{}' and '{}'", symbol(op), type_name(a),
               type_name(b));
}

[[noreturn]] void fail_overflow(Runtime& runtime) {
  runtime.fail("integers beyond 64 bits are outside the supported subset");
}

int64_t integer_power(Runtime& runtime, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      fail_overflow(runtime);
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow(runtime);
  }
  return result;
}

double real_power(Runtime& runtime, double a, double b) {
  if (a == 0 && b < 0) runtime.fail("0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
    runtime.fail("complex numbers are outside the supported subset");
  }
  if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) {
    runtime.fail("the result of ** is too large");
  }
  return result;
}

double real_mod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double real_floor_div(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

void check_divisor(Runtime& runtime, Operator op, bool is_zero) {
  const bool divides = op == Operator::div || op == Operator::floor_div || op == Operator::mod;
  if (divides && is_zero) runtime.fail("division by zero");
}

Value integer_arithmetic(Runtime& runtime, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  check_divisor(runtime, op, b == 0);
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow(runtime);
      return result;
    case Operator::sub:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow(runtime);
      return result;
    case Operator::mul:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow(runtime);
      return result;
    case Operator::div:
      return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
    case Operator::pow:
      if (b < 0) return real_power(runtime, static_cast<double>(a), static_cast<double>(b));
      return integer_power(runtime, a, b);
    default:
      break;
  }
  if (b == -1) {  // the one quotient that may not fit
    if (op == Operator::mod) return int64_t{0};
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) fail_overflow(runtime);
    return result;
  }
  const int64_t rest = a % b;
  const bool is_adjusted = rest != 0 && (rest < 0) != (b < 0);
  if (op == Operator::mod) return is_adjusted ? rest + b : rest;
  return a / b - (is_adjusted ? 1 : 0);
}

Value real_arithmetic(Runtime& runtime, Operator op, double a, double b) {
  check_divisor(runtime, op, b == 0);
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::sub:
      return a - b;
    case Operator::mul:
      return a * b;
    case Operator::div:
      return a / b;
    case Operator::floor_div:
      return real_floor_div(a, b);
    case Operator::mod:
      return real_mod(a, b);
    default:
      return real_power(runtime, a, b);
  }
}

Value add_text(Runtime& runtime, const Value& a, const Value& b) {
  const bool is_markup = a.is_markup() || b.is_markup();
  const Value left = is_markup ? escaped(runtime, a) : a;
  const Value right = is_markup ? escaped(runtime, b) : b;
  runtime.reserve_text(left.text().size() + right.text().size());
  std::string joined;
  joined.reserve(left.text().size() + right.text().size());
  joined.append(left.text()).append(right.text());
  return runtime.text(std::move(joined), is_markup);
}

// Text or a list, some times.
std::optional<Value> repeat(Runtime& runtime, const Value& value, const Value& times) {
  if (!times.is_integral()) return std::nullopt;
  const uint64_t n = static_cast<uint64_t>(std::max<int64_t>(times.integral(), 0));
  const auto total = [&](size_t size) {
    uint64_t product = 0;
    return __builtin_mul_overflow(n, uint64_t{size}, &product) ? UINT64_MAX : product;
  };
  if (value.is_text()) {
    runtime.reserve_text(total(value.text().size()));
    std::string repeated;
    if (!value.text().empty()) {
      for (uint64_t i = 0; i < n; ++i) repeated += value.text();
    }
    return runtime.text(std::move(repeated), value.is_markup());
  }
  if (const auto* sequence = value.as<Sequence>()) {
    runtime.reserve_values(total(sequence->items.size()));
    std::vector<Value> items;
    if (!sequence->items.empty()) {
      for (uint64_t i = 0; i < n; ++i) {
        items.insert(items.end(), sequence->items.begin(), sequence->items.end());
      }
    }
    const bool is_list = sequence->is_list();
    return Value(
        runtime.list(std::move(items), is_list ? SequenceKind::list : SequenceKind::tuple));
  }
  return std::nullopt;
}

std::optional<Value> concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return add_text(runtime, a, b);
  const auto *x = a.as<Sequence>(), *y = b.as<Sequence>();
  if (x == nullptr || y == nullptr || x->is_list() != y->is_list()) return std::nullopt;
  std::vector<Value> items = x->items;
  items.insert(items.end(), y->items.begin(), y->items.end());
  const bool is_list = x->is_list();
  return Value(runtime.list(std::move(items), is_list ? SequenceKind::list : SequenceKind::tuple));
}

std::optional<Value> merge(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::add) return concatenate(runtime, a, b);
  if (op == Operator::mul) {
    auto repeated = repeat(runtime, a, b);
    return repeated ? repeated : repeat(runtime, b, a);
  }
  if (op == Operator::mod && a.is_text()) return format_percent(runtime, a, b);
  return std::nullopt;
}

}  // namespace

const char* symbol(Operator op) {
  static constexpr const char* kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return integer_arithmetic(runtime, op, a.integral(), b.integral());
  }
  if (a.is_number() && b.is_number()) {
    return real_arithmetic(runtime, op, a.number(), b.number());
  }
  if (auto merged = merge(runtime, op, a, b)) return *merged;
  fail_types(runtime, op, a, b);
}

Value negate(Runtime& runtime, const Value& value) {
  if (value.is(Kind::real)) return -value.real();
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (!value.is_integral()) runtime.fail("a {} has no negative", type_name(value));
  return integer_arithmetic(runtime, Operator::sub, 0, value.integral());
}

}  // namespace octet::jinja
