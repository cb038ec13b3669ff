#include "ir/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace octet {

int64_t n_elems(const Shape& shape) {
  constexpr int64_t kMost = int64_t{1} << 48;  // sums of many, in bytes, stay far below 2^63
  int64_t n = 1;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(n, dim, &n) || n > kMost) {
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

std::string to_string(const TensorType& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), to_string(type.shape));
}

}  // namespace octet
