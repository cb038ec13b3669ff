// The reference kernels, one a primitive and called like it, and what they share. Each body is the
// op's equation in src/ir/ops, element by element.
#pragma once

#include <cstddef>
#include <span>

#include "backends/cpu/reference/reference.h"
#include "ir/ops/slots.h"

namespace octet::reference {

#define OP(op, ...) void op(const RefCall& call);
#include "ir/ops/ops.def"

// y = x: the interpreter rounds.
void copy(const RefCall& call);
inline size_t size(int64_t n) {
  return static_cast<size_t>(n);
}
inline size_t dim(const RefTensor& t, size_t axis) {
  return size(t.type.shape[axis]);
}

// The data of an optional operand, empty where it is absent.
inline std::span<double> optional(std::span<const RefTensor> tensors, size_t i) {
  return i < tensors.size() ? tensors[i].data : std::span<double>();
}

// Row r of a [rows, cols] tensor.
inline std::span<double> row(const RefTensor& t, size_t r) {
  const size_t cols = dim(t, 1);
  return t.data.subspan(r * cols, cols);
}

// Calls f(i, to) for each element i of a row-major shape, in order: `to` is begin + its index times
// the steps, by axis.
template <typename F>
void walk(const Shape& shape, const Shape& steps, int64_t begin, F&& f) {
  const size_t n = size(n_elems(shape));
  const size_t n_outer = shape.empty() ? 0 : shape.size() - 1;
  const int64_t inner = shape.empty() ? 1 : shape.back();
  const int64_t step = shape.empty() ? 0 : steps.back();
  Shape at(n_outer, 0);
  for (size_t i = 0; i < n;) {
    for (int64_t k = 0; k < inner; ++k) f(i++, size(begin + k * step));
    for (size_t axis = n_outer; axis-- > 0;) {
      begin += steps[axis];
      if (++at[axis] < shape[axis]) break;
      begin -= at[axis] * steps[axis];
      at[axis] = 0;
    }
  }
}

}  // namespace octet::reference
