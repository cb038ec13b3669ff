#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/kernels.h"
#include "base/error.h"

namespace octet::reference {
namespace {

double unary_value(OpCode op, double x) {
  switch (op) {
    case OpCode::neg:
      return -x;
    case OpCode::abs:
      return std::fabs(x);
    case OpCode::sign:
      return std::isnan(x) ? x : (x > 0 ? 1.0 : 0.0) - (x < 0 ? 1.0 : 0.0);
    case OpCode::exp:
      return std::exp(x);
    case OpCode::log:
      return std::log(x);
    case OpCode::sqrt:
      return std::sqrt(x);
    case OpCode::rsqrt:
      return 1 / std::sqrt(x);
    case OpCode::square:
      return x * x;
    case OpCode::tanh:
      return std::tanh(x);
    case OpCode::erf:
      return std::erf(x);
    case OpCode::logistic:
      return 1 / (1 + std::exp(-x));
    case OpCode::sin:
      return std::sin(x);
    case OpCode::cos:
      return std::cos(x);
    default:
      CHECK(false);
      return 0;
  }
}

// maximum and minimum hand a NaN on, whichever operand it is.
double binary_value(OpCode op, double a, double b) {
  switch (op) {
    case OpCode::add:
      return a + b;
    case OpCode::sub:
      return a - b;
    case OpCode::mul:
      return a * b;
    case OpCode::div:
      return a / b;
    case OpCode::maximum:
      return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b);
    case OpCode::minimum:
      return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b);
    default:
      CHECK(false);
      return 0;
  }
}

}  // namespace

void unary(OpCode op, const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    call.out[0].data[i] = unary_value(op, call.in[0].data[i]);
  }
}

void binary(OpCode op, const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    call.out[0].data[i] = binary_value(op, call.in[0].data[i], call.in[1].data[i]);
  }
}

void compare(OpCode op, const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    const double a = call.in[0].data[i];
    const double b = call.in[1].data[i];
    call.out[0].data[i] = (op == OpCode::less ? a < b : a == b) ? 1 : 0;
  }
}

void select(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    call.out[0].data[i] = call.in[call.in[0].data[i] != 0 ? 1 : 2].data[i];
  }
}

void copy(const RefCall& call) {
  std::copy(call.in[0].data.begin(), call.in[0].data.end(), call.out[0].data.begin());
}

}  // namespace octet::reference
