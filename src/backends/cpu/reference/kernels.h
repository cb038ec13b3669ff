// The reference kernels, one an op and called like it, and what they share. Each body is the op's
// equation in src/ir/ops, element by element.
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
// The last two results of OpRow::amax_results: of the first n, each rounded to its dtype.
void amax_of_results(const RefCall& call, size_t n);

// norm.cpp, activation.cpp: of operands that are not quantized; stored.cpp has the ops, whose
// operands may be codes in groups.
namespace unquantized {
void rms_norm(const RefCall& call);
void rms_norm_grad(const RefCall& call);
void layer_norm(const RefCall& call);
void layer_norm_grad(const RefCall& call);
void gated_act(const RefCall& call);
void gated_act_grad(const RefCall& call);
void gelu(const RefCall& call);
void gelu_grad(const RefCall& call);
}  // namespace unquantized

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

// Steps through a shape's indices in row-major order: for (Index i(shape); i.more(); i.next()) use
// i[axis], i.flat().
class Index {
 public:
  explicit Index(const Shape& shape) : shape_(shape), at_(shape.size(), 0), left_(n_elems(shape)) {}
  bool more() const { return left_ > 0; }
  void next() {
    --left_;
    ++flat_;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      if (++at_[axis] < shape_[axis]) return;
      at_[axis] = 0;
    }
  }
  int64_t operator[](int64_t axis) const { return at_[size(axis)]; }
  size_t flat() const { return flat_; }
  const Shape& at() const { return at_; }

 private:
  const Shape& shape_;
  Shape at_;
  int64_t left_;
  size_t flat_ = 0;
};

// The flat position of an index in a row-major tensor.
inline size_t flat_of(const Shape& strides, const Shape& at) {
  int64_t flat = 0;
  for (size_t i = 0; i < at.size(); ++i) flat += strides[i] * at[i];
  return size(flat);
}

}  // namespace octet::reference
