#include "math/elementwise.h"

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

// In place, too.
void copy(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i) call.out[0].data[i] = call.in[0].data[i];
}
void cast(const RefCall& call) {
  copy(call);
}
void stop_gradient(const RefCall& call) {
  copy(call);
}

}  // namespace octet::reference
