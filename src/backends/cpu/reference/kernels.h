// The reference kernels by name, and what they share. Each body is the op's equation in src/ir/ops,
// element by element.
#pragma once

#include <cstddef>
#include <span>

#include "backends/cpu/reference/reference.h"
#include "ir/ops/slots.h"

namespace octet::reference {

// elementwise.cpp
void unary(OpCode op, const RefCall& call);
void binary(OpCode op, const RefCall& call);
void compare(OpCode op, const RefCall& call);
void select(const RefCall& call);
void rescale(const RefCall& call);
void delayed_rescale(const RefCall& call);
void store_scaled(const RefCall& call);
void cast_in(const RefCall& call);
void data_scale(const RefCall& call);
void power_of_two(const RefCall& call);
void copy(const RefCall& call);  // cast, stop_gradient, reshape: the interpreter rounds
// move.cpp
void fill(const RefCall& call);
void iota(const RefCall& call);
void broadcast(const RefCall& call);
void transpose(const RefCall& call);
void slice(const RefCall& call);
void pad(const RefCall& call);
void concatenate(const RefCall& call);
// reduce.cpp
void reduce_sum(const RefCall& call);
void reduce_max(const RefCall& call);
void argmax(const RefCall& call);
// linear.cpp
void dot(const RefCall& call);
void gemm(const RefCall& call);
void bias_add(const RefCall& call);
void column_sum(const RefCall& call);
void gather(const RefCall& call);
void scatter_add(const RefCall& call);
// norm.cpp
void rms_norm(const RefCall& call);
void rms_norm_grad(const RefCall& call);
void layer_norm(const RefCall& call);
void layer_norm_grad(const RefCall& call);
// attention.cpp
void rope(const RefCall& call);
void attention(const RefCall& call);
void attention_grad(const RefCall& call);
void cache_write(const RefCall& call);
// activation.cpp
void gated_act(const RefCall& call);
void gated_act_grad(const RefCall& call);
void gelu(const RefCall& call);
void gelu_grad(const RefCall& call);
// loss.cpp
void cross_entropy(const RefCall& call);
void cross_entropy_grad(const RefCall& call);
// quantize.cpp
void amax(const RefCall& call);
// The last two results of OpDef::amax_results: of the first n, each rounded to its dtype.
void amax_of_results(const RefCall& call, size_t n);
void any_of(const RefCall& call);
void quant_scale(const RefCall& call);
void delayed_scale(const RefCall& call);
void periodic_scale(const RefCall& call);
void quantize(const RefCall& call);
void quantize_both(const RefCall& call);
void quantize_groups(const RefCall& call);
void fake_quantize(const RefCall& call);
void dequantize(const RefCall& call);
void add_quantize(const RefCall& call);
void amax_quantize(const RefCall& call);
// stored.cpp: operands that may be codes in groups, and results that are quantized as they are
// stored
void rms_norm_stored(const RefCall& call);
void rms_norm_grad_stored(const RefCall& call);
void layer_norm_stored(const RefCall& call);
void layer_norm_grad_stored(const RefCall& call);
void gated_act_stored(const RefCall& call);
void gated_act_grad_stored(const RefCall& call);
void gelu_stored(const RefCall& call);
void gelu_grad_stored(const RefCall& call);
void rms_norm_quantize(const RefCall& call);
void layer_norm_quantize(const RefCall& call);
void gated_act_quantize(const RefCall& call);
void gelu_quantize(const RefCall& call);
void gated_act_grad_quantize(const RefCall& call);
// update.cpp
void global_norm(const RefCall& call);
void adamw_step(const RefCall& call);
// ranks.cpp: of one rank alone
void take_shard(const RefCall& call);
void put_shard(const RefCall& call);
void all_gather(const RefCall& call);
void reduce_scatter(const RefCall& call);
void all_reduce(const RefCall& call);
void sharded_norm(const RefCall& call);

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
