#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "io/safetensors.h"

namespace octet {
namespace {

// In the order of the enumerators.
constexpr std::array<std::optional<Dtype>, enum_count(SafeDtype{})> kNative = {
    std::nullopt, Dtype::f32, Dtype::bf16, Dtype::fp16, Dtype::e4m3, Dtype::e5m2, std::nullopt,
    Dtype::i32,   Dtype::i16, Dtype::int8, Dtype::u32,  Dtype::u16,  Dtype::u8,   Dtype::boolean};

}  // namespace

std::string_view safe_dtype_name(SafeDtype dtype) {
  return enum_name(dtype);
}
std::optional<SafeDtype> safe_dtype_from_name(std::string_view name) {
  return enum_from_name<SafeDtype>(name);
}
std::optional<Dtype> native_dtype(SafeDtype dtype) {
  return kNative.at(static_cast<size_t>(dtype));
}
int element_width(SafeDtype dtype) {
  const auto native = native_dtype(dtype);
  return native ? static_cast<int>(bytes_of(*native, 1)) : 8;  // f64, i64
}

SafeDtype stored_as(Dtype dtype) {
  CHECK(dtype != Dtype::real);
  const auto at = std::ranges::find(kNative, std::optional(dtype));
  if (at != kNative.end()) return static_cast<SafeDtype>(at - kNative.begin());
  CHECK(bytes_of(dtype, 1) == 1);
  return SafeDtype::u8;
}

TensorDecl tensor_decl(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  return {std::move(name), stored_as(dtype), std::move(shape), dtype};
}

uint64_t TensorDecl::n_bytes() const {
  uint64_t n = static_cast<uint64_t>(element_width(stored));
  bool is_empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      throw Error(ErrorCode::bad_data, "[safetensors] '{}': expected extents of 0 or more, got {}",
                  name, extent);
    }
    if (extent == 0) is_empty = true;
    if (extent != 0 && n > static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(extent)) {
      throw Error(ErrorCode::bad_data, "[safetensors] '{}': expected fewer than 2^63 bytes", name);
    }
    if (extent != 0) n *= static_cast<uint64_t>(extent);
  }
  return is_empty ? 0 : n;
}

}  // namespace octet
