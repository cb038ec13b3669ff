#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

// Calls f(result position, element) for each element of x, in order.
template <typename F>
void for_each_reduced(const RefTensor& x, const Shape& axes, F&& f) {
  const Shape& shape = x.type.shape;
  Shape kept;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool gone = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!gone) kept.push_back(static_cast<int64_t>(i));
  }
  Shape result;
  for (const int64_t axis : kept) result.push_back(shape[size(axis)]);
  const Shape strides = row_major_strides(result);
  Shape to(kept.size());
  for (Index i(shape); i.more(); i.next()) {
    for (size_t k = 0; k < kept.size(); ++k) to[k] = i[kept[k]];
    f(flat_of(strides, to), i);
  }
}

// Is b above a? A NaN is above everything and nothing is above it.
bool above(double b, double a) {
  return !std::isnan(a) && (std::isnan(b) || b > a);
}

}  // namespace

void reduce_sum(const RefCall& call) {
  const auto y = call.out[0].data;
  std::fill(y.begin(), y.end(), 0.0);
  for_each_reduced(call.in[0], std::get<AxesAttrs>(call.attrs).axes,
                   [&](size_t to, const Index& i) { y[to] += call.in[0].data[i.flat()]; });
}

void reduce_max(const RefCall& call) {
  const auto y = call.out[0].data;
  std::fill(y.begin(), y.end(), -std::numeric_limits<double>::infinity());
  for_each_reduced(call.in[0], std::get<AxesAttrs>(call.attrs).axes,
                   [&](size_t to, const Index& i) {
                     const double x = call.in[0].data[i.flat()];
                     if (above(x, y[to])) y[to] = x;
                   });
}

void argmax(const RefCall& call) {
  const int64_t axis = std::get<AxisAttrs>(call.attrs).axis;
  const auto y = call.out[0].data;
  std::fill(y.begin(), y.end(), 0.0);
  std::vector<double> best(y.size());
  for_each_reduced(call.in[0], {axis}, [&](size_t to, const Index& i) {
    const double x = call.in[0].data[i.flat()];
    if (i[axis] > 0 && !above(x, best[to])) return;
    best[to] = x;
    y[to] = static_cast<double>(i[axis]);
  });
}

}  // namespace octet::reference
