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

// By one factor, or one a row or a column.
template <typename F>
void scaled(const RefCall& call, F f) {
  const Shape &factor = call.in[1].type.shape, &y = call.out[0].type.shape;
  const bool is_one = call.in[1].data.size() == 1, is_of_rows = !is_one && factor[1] == 1;
  const size_t width = is_one ? 1 : static_cast<size_t>(y[1]);
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    const size_t at = is_one ? 0 : is_of_rows ? i / width : i % width;
    call.out[0].data[i] = f(call.in[0].data[i], call.in[1].data[at]);
  }
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
