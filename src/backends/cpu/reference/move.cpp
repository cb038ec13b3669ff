#include <algorithm>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {

void fill(const RefCall& call) {
  const double value = std::get<FillAttrs>(call.attrs).value;
  std::fill(call.out[0].data.begin(), call.out[0].data.end(), value);
}

void iota(const RefCall& call) {
  const auto& a = std::get<IotaAttrs>(call.attrs);
  for (Index i(a.shape); i.more(); i.next()) {
    call.out[0].data[i.flat()] = static_cast<double>(i[a.axis]);
  }
}

void broadcast(const RefCall& call) {
  const auto& a = std::get<BroadcastAttrs>(call.attrs);
  const Shape strides = row_major_strides(call.in[0].type.shape);
  Shape from(a.axes.size());
  for (Index i(a.shape); i.more(); i.next()) {
    for (size_t k = 0; k < from.size(); ++k) from[k] = i[a.axes[k]];
    call.out[0].data[i.flat()] = call.in[0].data[flat_of(strides, from)];
  }
}

void reshape(const RefCall& call) {
  copy(call);
}

void transpose(const RefCall& call) {
  const TensorType &x = call.in[0].type, &y = call.out[0].type;
  const Shape perm = stored_perm(x, std::get<TransposeAttrs>(call.attrs).perm, y);
  const Shape strides = row_major_strides(x.stored_shape()), extent = y.stored_shape();
  Shape from(perm.size());
  for (Index i(extent); i.more(); i.next()) {
    for (size_t k = 0; k < from.size(); ++k) from[size(perm[k])] = i.at()[k];
    call.out[0].data[i.flat()] = call.in[0].data[flat_of(strides, from)];
  }
}

void slice(const RefCall& call) {
  const auto& a = std::get<SliceAttrs>(call.attrs);
  const Shape strides = row_major_strides(call.in[0].type.shape);
  Shape from(a.start.size());
  for (Index i(call.out[0].type.shape); i.more(); i.next()) {
    for (size_t k = 0; k < from.size(); ++k) from[k] = a.start[k] + a.stride[k] * i.at()[k];
    call.out[0].data[i.flat()] = call.in[0].data[flat_of(strides, from)];
  }
}

void pad(const RefCall& call) {
  const auto& a = std::get<PadAttrs>(call.attrs);
  std::fill(call.out[0].data.begin(), call.out[0].data.end(), a.value);
  const Shape strides = row_major_strides(call.out[0].type.shape);
  Shape to(a.low.size());
  for (Index i(call.in[0].type.shape); i.more(); i.next()) {
    for (size_t k = 0; k < to.size(); ++k) to[k] = a.low[k] + (a.interior[k] + 1) * i.at()[k];
    call.out[0].data[flat_of(strides, to)] = call.in[0].data[i.flat()];
  }
}

void concatenate(const RefCall& call) {
  const size_t axis = size(std::get<AxisAttrs>(call.attrs).axis);
  const Shape strides = row_major_strides(call.out[0].type.shape);
  int64_t start = 0;
  for (const RefTensor& x : call.in) {
    for (Index i(x.type.shape); i.more(); i.next()) {
      Shape to = i.at();
      to[axis] += start;
      call.out[0].data[flat_of(strides, to)] = x.data[i.flat()];
    }
    start += x.type.shape[axis];
  }
}

}  // namespace octet::reference
