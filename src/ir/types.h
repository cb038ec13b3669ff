// Shapes and tensor types of the graph.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "formats/granularity.h"

namespace octet {

// Row-major, all dimensions static and at least 0; {} is a scalar.
using Shape = std::vector<int64_t>;

int64_t n_elems(const Shape& shape);
std::string to_string(const Shape& shape);  // "[8,16]"; "[]" for a scalar

// Strides in elements of a contiguous row-major tensor.
Shape row_major_strides(const Shape& shape);

// How a matrix [R, C] lies: as it is, or as [C, R'], R' being R rounded up to a multiple of `pad`;
// what pads are zeros.
struct DataLayout {
  bool transposed = false;
  int64_t pad = 1;  // 1 where it is not transposed
  bool operator==(const DataLayout&) const = default;
};

// `shape` is the logical one, whatever the layout. An eight-bit type has scales, x = scale q; they
// are a value of their own, of type scale_type().
struct TensorType {
  Dtype dtype = Dtype::real;
  Shape shape;
  Granularity granularity = {};
  DataLayout layout = {};

  bool is_scaled() const { return granularity.kind != Granularity::Kind::none; }
  bool has(Granularity::Kind kind) const { return granularity.kind == kind; }
  // 1xG with BF16 scales, as kernels make it that quantize what they store.
  bool in_row_groups() const {
    return has(Granularity::Kind::group) && granularity.scale == Dtype::bf16;
  }
  int64_t n_elems() const { return octet::n_elems(shape); }
  // Shape as it lies: [C, R'] of a transposed matrix; and how many elements that has.
  Shape stored_shape() const;
  int64_t n_stored() const {
    return layout.transposed ? octet::n_elems(stored_shape()) : n_elems();
  }
  int64_t n_bytes() const { return bytes_of(dtype, n_stored()); }
  bool operator==(const TensorType&) const = default;
};

// Type that a node says of a result, whose shape follows from its operands. An eight-bit type alone
// has one scale.
struct ResultType {
  Dtype dtype;
  Granularity granularity;
  DataLayout layout = {};

  ResultType(Dtype dtype)
      : dtype(dtype),
        granularity{.kind =
                        needs_scale(dtype) ? Granularity::Kind::tensor : Granularity::Kind::none} {}
  ResultType(Dtype dtype, const Granularity& granularity)
      : dtype(dtype), granularity(granularity) {}
  explicit ResultType(const TensorType& type)
      : dtype(type.dtype), granularity(type.granularity), layout(type.layout) {}
  ResultType transposed(int64_t pad) const;
  bool operator==(const ResultType&) const = default;
};

using ResultTypes = std::vector<ResultType>;

// A number, whose storage a recipe chooses later; and an index or a label.
inline TensorType real_type(Shape shape) {
  return {Dtype::real, std::move(shape)};
}
inline TensorType index_type(Shape shape) {
  return {Dtype::i32, std::move(shape)};
}

// Type that a shape rule sees of an optional operand that is absent; no value has it.
inline TensorType absent_type() {
  return {Dtype::real, {-1}};
}

// True if the addend of a gemm is a row of biases, added to every row, and not a matrix.
inline bool is_bias_row(const TensorType& c) {
  return c.shape.size() == 1;
}
// True if a gemm that reads a factor, or reads it `trans`posed, reads transposed what lies there.
inline bool reads_transposed(const TensorType& factor, bool trans) {
  return trans != factor.layout.transposed;
}
// The axes of x as it lies by those of y, which is x with its axes permuted.
Shape stored_perm(const TensorType& x, Shape perm, const TensorType& y);
// op(factor) with what pads it.
Shape read_shape(const TensorType& factor, bool trans);

// Type of the scales: one f32[] a tensor, [R, 1] for rows, [.., ceil(C/G)] for 1xG, [ceil(R/G), C]
// for Gx1, [ceil(R/B), ceil(C/B)] for blocks, [ceil(n/N)] for runs of N. absent_type() where there
// are none. Throws Error(invalid_argument) where the shape has no such scales.
TensorType scale_type(const TensorType& type);

// The rows and columns, of the matrix whose columns are the last axis, that share a scale; {0, 0}
// where all do, or none, and for runs.
struct ScaleTile {
  int64_t rows = 0, cols = 0;
  bool is_all() const { return rows == 0; }
};
ScaleTile scale_tile(const TensorType& type);
// Which of the scales is element i's, in the order of memory. Not of runs.
size_t scale_index(const TensorType& type, size_t i);

// Elements of the moments m and v that share metadata; 128 where neither is quantized.
int64_t run_size(const TensorType& m, const TensorType& v);

// "bf16[8,16]", "e4m3:1x16[8,16]"; behind the granularity "/f32" for instance, where scales are
// other than usual_scale(), and "^T" where it lies transposed, "^T16" where padded too.
std::string to_string(const TensorType& type);
// The dtype, and the shape as it lies.
std::string storage_text(const TensorType& type);

}  // namespace octet
