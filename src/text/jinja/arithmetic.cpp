#include <cmath>

#include "text/jinja/operations.h"

namespace octet::jinja {

void fail_operands(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  static constexpr const char* kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  if (a.is_undefined()) runtime.fail_undefined(a);
  if (b.is_undefined()) runtime.fail_undefined(b);
  if (op == Operator::mod && a.is_text()) {
    runtime.fail("text % values is outside the supported subset");
  }
  runtime.fail("unsupported operand types for {}: '{}' and '{}'", kSymbols[static_cast<size_t>(op)],
               type_name(a), type_name(b));
}

void fail_overflow(Runtime& runtime) {
  runtime.fail("integers beyond 64 bits are outside the supported subset");
}

int64_t integer_of(Runtime& runtime, const Value& value, const char* what) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (!value.is_integral()) runtime.fail("{} expected an integer, got {}", what, type_name(value));
  return value.integral();
}

namespace {

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

Value integer_arithmetic(Runtime& runtime, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::add:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::sub:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::mul:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::div:
      return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
    case Operator::pow:
      if (b < 0) return real_power(runtime, static_cast<double>(a), static_cast<double>(b));
      return integer_power(runtime, a, b);
    default: {
      if (b == -1) {  // the one quotient that may not fit
        return op == Operator::mod ? Value(int64_t{0})
                                   : integer_arithmetic(runtime, Operator::sub, 0, a);
      }
      const int64_t rest = a % b;
      const bool is_adjusted = rest != 0 && (rest < 0) != (b < 0);
      result = op == Operator::mod ? rest + (is_adjusted ? b : 0) : a / b - (is_adjusted ? 1 : 0);
    }
  }
  if (overflows) fail_overflow(runtime);
  return result;
}

Value real_arithmetic(Runtime& runtime, Operator op, double a, double b) {
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
  runtime.reserve_text(left.n_bytes() + right.n_bytes());
  return runtime.text(runtime.read(left) + runtime.read(right), is_markup);
}

// Text or a list, some times.
Value repeat(Runtime& runtime, const Value& value, int64_t times) {
  const auto* sequence = value.as<Sequence>();
  const size_t size = sequence != nullptr ? sequence->items.size() : value.n_bytes();
  const uint64_t n = size == 0 ? 0 : static_cast<uint64_t>(std::max<int64_t>(times, 0));
  uint64_t total = 0;
  if (__builtin_mul_overflow(n, uint64_t{size}, &total)) total = UINT64_MAX;
  if (sequence != nullptr) {
    runtime.reserve_values(total);
    std::vector<Value> items;
    for (uint64_t i = 0; i < n; ++i) {
      items.insert(items.end(), sequence->items.begin(), sequence->items.end());
    }
    return runtime.list(std::move(items), sequence->type);
  }
  runtime.reserve_text(total);
  std::string repeated;
  for (uint64_t i = 0; i < n; ++i) repeated += runtime.read(value);
  return runtime.text(std::move(repeated), value.is_markup());
}

Value concatenate(Runtime& runtime, const Sequence& a, const Sequence& b) {
  runtime.reserve_values(a.items.size() + b.items.size());
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return runtime.list(std::move(items), a.type);
}

}  // namespace

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const bool divides = op == Operator::div || op == Operator::floor_div || op == Operator::mod;
    if (divides && b.number() == 0) runtime.fail("division by zero");
    if (a.is_integral() && b.is_integral()) {
      return integer_arithmetic(runtime, op, a.integral(), b.integral());
    }
    return real_arithmetic(runtime, op, a.number(), b.number());
  }
  const auto *x = a.as<Sequence>(), *y = b.as<Sequence>();
  if (op == Operator::add && a.is_text() && b.is_text()) return add_text(runtime, a, b);
  if (op == Operator::add && x != nullptr && y != nullptr && x->type == y->type) {
    return concatenate(runtime, *x, *y);
  }
  if (op == Operator::mul && (x != nullptr || a.is_text()) && b.is_integral()) {
    return repeat(runtime, a, b.integral());
  }
  if (op == Operator::mul && (y != nullptr || b.is_text()) && a.is_integral()) {
    return repeat(runtime, b, a.integral());
  }
  fail_operands(runtime, op, a, b);
}

}  // namespace octet::jinja
