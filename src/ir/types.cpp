#include "ir/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "formats/quantize.h"

namespace octet {

int64_t n_elems(const Shape& shape) {
  constexpr int64_t kMax = int64_t{1} << 48;  // sums of many, in bytes, stay far below 2^63
  int64_t n = 1;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(n, dim, &n) || n > kMax) {
      throw Error(ErrorCode::invalid_argument, "[size] expected at most 2^48 elements, got {}",
                  to_string(shape));
    }
  }
  return n;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Shape TensorType::stored_shape() const {
  if (!layout.transposed) return shape;
  return {shape[1], ceil_div(shape[0], layout.pad) * layout.pad};
}

Shape stored_perm(const TensorType& x, Shape perm, const TensorType& y) {
  if (x.layout.transposed != y.layout.transposed) std::swap(perm[0], perm[1]);
  return perm;
}

Shape read_shape(const TensorType& factor, bool trans) {
  Shape shape = factor.stored_shape();
  if (reads_transposed(factor, trans)) std::swap(shape[0], shape[1]);
  return shape;
}

ResultType ResultType::transposed(int64_t pad) const {
  ResultType type = *this;
  type.layout = {.transposed = true, .pad = pad};
  return type;
}

TensorType scale_type(const TensorType& type) {
  using Kind = Granularity::Kind;
  const Granularity& by = type.granularity;
  if (by.kind == Kind::none) return absent_type();
  TensorType scales{.dtype = by.scale, .shape = {}};
  if (by.kind == Kind::tensor) return scales;
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorCode::invalid_argument, "[types] {} has no scales: {}", to_string(type), what);
  };
  if (by.kind != Kind::row && by.size < 1) fail("expected a size of at least 1");
  if (by.kind == Kind::run) {
    scales.shape = {ceil_div(type.n_elems(), by.size)};
    return scales;
  }
  if (type.shape.empty()) fail("expected at least one axis");
  const bool is_matrix = type.shape.size() == 2;
  if (!is_matrix && by.kind != Kind::group && by.kind != Kind::row) fail("expected a matrix");
  const MatrixShape grid = scale_shape({is_matrix ? type.shape[0] : 1, type.shape.back()}, by);
  scales.shape = type.shape;
  scales.shape.back() = grid.cols;
  if (is_matrix) scales.shape[0] = grid.rows;
  return scales;
}

ScaleTile scale_tile(const TensorType& type) {
  const int64_t size = type.granularity.size;
  switch (type.granularity.kind) {
    case Granularity::Kind::row:
      return {1, std::max<int64_t>(1, type.shape.empty() ? 1 : type.shape.back())};
    case Granularity::Kind::group:
      return {1, size};
    case Granularity::Kind::column_group:
      return {size, 1};
    case Granularity::Kind::block:
      return {size, size};
    default:
      return {};
  }
}

size_t scale_index(const TensorType& type, size_t i) {
  const ScaleTile tile = scale_tile(type);
  if (tile.is_all()) return 0;
  const int64_t cols = type.shape.back(), at = static_cast<int64_t>(i);
  const int64_t row = at / cols / tile.rows, col = at % cols / tile.cols;
  return static_cast<size_t>(row * ceil_div(cols, tile.cols) + col);
}

int64_t run_size(const TensorType& m, const TensorType& v) {
  for (const TensorType* moment : {&m, &v})
    if (moment->is_scaled()) return moment->granularity.size;
  return 128;
}

std::string to_string(const TensorType& type) {
  std::string text(dtype_name(type.dtype));
  const Granularity& by = type.granularity;
  if (type.is_scaled()) text += ":" + granularity_name(by);
  if (type.is_scaled() && by.scale != usual_scale(by.kind))
    text += fmt::format("/{}", dtype_name(by.scale));
  if (type.layout.transposed) text += "^T";
  if (type.layout.pad > 1) text += std::to_string(type.layout.pad);
  return text + to_string(type.shape);
}

std::string storage_text(const TensorType& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), to_string(type.stored_shape()));
}

}  // namespace octet
