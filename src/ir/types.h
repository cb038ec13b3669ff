// Shapes and tensor types of the graph.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "formats/dtype.h"

namespace octet {

// Row-major, all dimensions static and at least 0; {} is a scalar.
using Shape = std::vector<int64_t>;

int64_t n_elems(const Shape& shape);
std::string to_string(const Shape& shape);  // "[8,16]"; "[]" for a scalar

// Strides in elements of a contiguous row-major tensor.
Shape row_major_strides(const Shape& shape);

struct TensorType {
  Dtype dtype = Dtype::real;
  Shape shape;

  int64_t n_elems() const { return octet::n_elems(shape); }
  int64_t n_bytes() const { return bytes_of(dtype, n_elems()); }
  bool operator==(const TensorType&) const = default;
};

// A number, whose storage a recipe chooses later; and an index or a label.
inline TensorType real_type(Shape shape) {
  return {Dtype::real, std::move(shape)};
}
inline TensorType index_type(Shape shape) {
  return {Dtype::i32, std::move(shape)};
}

// What a shape rule sees of an optional operand that is absent; no value has this type.
inline TensorType absent_type() {
  return {Dtype::real, {-1}};
}

std::string to_string(const TensorType& type);  // "bf16[8,16]"

}  // namespace octet
