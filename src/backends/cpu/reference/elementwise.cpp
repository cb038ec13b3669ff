#include "math/elementwise.h"

#include <algorithm>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

template <typename F>
void unary(const RefCall& call, F f) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i)
    call.out[0].data[i] = f(call.in[0].data[i], 0.0);
}

template <typename F>
void binary(const RefCall& call, F f) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i)
    call.out[0].data[i] = f(call.in[0].data[i], call.in[1].data[i]);
}
template <typename F>
void compare(const RefCall& call, F f) {
  binary(call, f);
}

template <typename F>
void scaled(const RefCall& call, F f) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i)
    call.out[0].data[i] = f(call.in[0].data[i], call.in[1].data[0]);
}

}  // namespace

#define ELEMENT(op, arity, ...)                                    \
  void op(const RefCall& call) {                                   \
    arity(call, [](double a, double b) { return op##_of(a, b); }); \
  }
#include "math/elementwise.def"

void select(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    call.out[0].data[i] = call.in[call.in[0].data[i] != 0 ? 1 : 2].data[i];
  }
}

void axpby(const RefCall& call) {
  using S = Axpby;
  const double factor_a = call.in[S::factor_a].data[0], factor_b = call.in[S::factor_b].data[0];
  binary(call, [&](double a, double b) { return factor_a * a + factor_b * b; });
}

void copy(const RefCall& call) {
  std::copy(call.in[0].data.begin(), call.in[0].data.end(), call.out[0].data.begin());
}
void cast(const RefCall& call) {
  copy(call);
}
void stop_gradient(const RefCall& call) {
  copy(call);
}

}  // namespace octet::reference
