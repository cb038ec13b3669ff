#include <algorithm>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {

void fill(const RefCall& call) {
  const double value = std::get<FillAttrs>(call.attrs).value;
  std::fill(call.out[0].data.begin(), call.out[0].data.end(), value);
}

void iota(const RefCall& call) {
  const auto& a = std::get<IotaAttrs>(call.attrs);
  Shape steps(a.shape.size(), 0);
  steps[size(a.axis)] = 1;
  walk(a.shape, steps, 0,
       [&](size_t i, size_t at) { call.out[0].data[i] = static_cast<double>(at); });
}

namespace {

// y[i] = x[from]
auto gathering(const RefCall& call) {
  return [x = call.in[0].data, y = call.out[0].data](size_t i, size_t from) { y[i] = x[from]; };
}

}  // namespace

void broadcast(const RefCall& call) {
  const auto& a = std::get<BroadcastAttrs>(call.attrs);
  const Shape strides = row_major_strides(call.in[0].type.shape);
  Shape steps(a.shape.size(), 0);
  for (size_t k = 0; k < a.axes.size(); ++k) steps[size(a.axes[k])] = strides[k];
  walk(a.shape, steps, 0, gathering(call));
}

void reshape(const RefCall& call) {
  copy(call);
}

void transpose(const RefCall& call) {
  const TensorType &x = call.in[0].type, &y = call.out[0].type;
  const Shape strides = row_major_strides(x.stored_shape());
  Shape steps;
  for (const int64_t axis : stored_perm(x, std::get<TransposeAttrs>(call.attrs).perm, y))
    steps.push_back(strides[size(axis)]);
  walk(y.stored_shape(), steps, 0, gathering(call));
}

void slice(const RefCall& call) {
  const auto& a = std::get<SliceAttrs>(call.attrs);
  Shape steps = row_major_strides(call.in[0].type.shape);
  int64_t begin = 0;
  for (size_t k = 0; k < steps.size(); ++k) {
    begin += a.start[k] * steps[k];
    steps[k] *= a.stride[k];
  }
  walk(call.out[0].type.shape, steps, begin, gathering(call));
}

void pad(const RefCall& call) {
  const auto& a = std::get<PadAttrs>(call.attrs);
  const auto x = call.in[0].data, y = call.out[0].data;
  std::fill(y.begin(), y.end(), a.value);
  Shape steps = row_major_strides(call.out[0].type.shape);
  int64_t begin = 0;
  for (size_t k = 0; k < steps.size(); ++k) {
    begin += a.low[k] * steps[k];
    steps[k] *= a.interior[k] + 1;
  }
  walk(call.in[0].type.shape, steps, begin, [&](size_t i, size_t to) { y[to] = x[i]; });
}

void concatenate(const RefCall& call) {
  const size_t axis = size(std::get<AxisAttrs>(call.attrs).axis);
  const auto y = call.out[0].data;
  const Shape steps = row_major_strides(call.out[0].type.shape);
  int64_t begin = 0;
  for (const RefTensor& x : call.in) {
    walk(x.type.shape, steps, begin, [&](size_t i, size_t to) { y[to] = x.data[i]; });
    begin += x.type.shape[axis] * steps[axis];
  }
}

}  // namespace octet::reference
