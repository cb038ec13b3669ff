#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

// Calls f(element of x, element of the result without these axes), in order.
template <typename F>
void for_each_reduced(const Shape& shape, const Shape& axes, F&& f) {
  Shape steps(shape.size(), 0);
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (std::ranges::count(axes, static_cast<int64_t>(axis)) > 0) continue;
    steps[axis] = stride;
    stride *= shape[axis];
  }
  walk(shape, steps, 0, f);
}

// Is b above a? A NaN is above everything and nothing is above it.
bool above(double b, double a) {
  return !std::isnan(a) && (std::isnan(b) || b > a);
}

}  // namespace

void reduce_sum(const RefCall& call) {
  const auto x = call.in[0].data, y = call.out[0].data;
  std::fill(y.begin(), y.end(), 0.0);
  for_each_reduced(call.in[0].type.shape, std::get<AxesAttrs>(call.attrs).axes,
                   [&](size_t i, size_t to) { y[to] += x[i]; });
}

void reduce_max(const RefCall& call) {
  const auto x = call.in[0].data, y = call.out[0].data;
  std::fill(y.begin(), y.end(), -std::numeric_limits<double>::infinity());
  for_each_reduced(call.in[0].type.shape, std::get<AxesAttrs>(call.attrs).axes,
                   [&](size_t i, size_t to) {
                     if (above(x[i], y[to])) y[to] = x[i];
                   });
}

void argmax(const RefCall& call) {
  const Shape& shape = call.in[0].type.shape;
  const size_t axis = size(std::get<AxisAttrs>(call.attrs).axis);
  const size_t stride = size(row_major_strides(shape)[axis]), n = size(shape[axis]);
  const auto x = call.in[0].data, y = call.out[0].data;
  std::fill(y.begin(), y.end(), 0.0);
  std::vector<double> best(y.size());
  for_each_reduced(shape, {static_cast<int64_t>(axis)}, [&](size_t i, size_t to) {
    const size_t place = i / stride % n;
    if (place > 0 && !above(x[i], best[to])) return;
    best[to] = x[i];
    y[to] = static_cast<double>(place);
  });
}

}  // namespace octet::reference
