#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "io/safetensors.h"

namespace octet {
namespace {

struct StoredDtype {
  std::optional<Dtype> native;
  int bits;
};
// In the order of the enumerators.
constexpr StoredDtype kStored[] = {
    {std::nullopt, 64}, {Dtype::f32, 32},  {Dtype::bf16, 16},   {Dtype::fp16, 16},
    {Dtype::e4m3, 8},   {Dtype::e5m2, 8},  {Dtype::e8m0, 8},    {std::nullopt, 64},
    {Dtype::i32, 32},   {Dtype::i16, 16},  {Dtype::int8, 8},    {Dtype::u32, 32},
    {Dtype::u16, 16},   {Dtype::u8, 8},    {Dtype::boolean, 8}, {std::nullopt, 64},
    {std::nullopt, 64}, {std::nullopt, 8}, {std::nullopt, 8},   {std::nullopt, 6},
    {std::nullopt, 6},  {std::nullopt, 4}};
static_assert(std::ssize(kStored) == enum_count(SafeDtype{}));

const StoredDtype& row_of(SafeDtype dtype) {
  return kStored[static_cast<size_t>(dtype)];
}

}  // namespace

std::string_view safe_dtype_name(SafeDtype dtype) {
  return enum_name(dtype);
}
std::optional<SafeDtype> safe_dtype_from_name(std::string_view name) {
  return enum_from_name<SafeDtype>(name);
}
std::optional<Dtype> native_dtype(SafeDtype dtype) {
  return row_of(dtype).native;
}
int element_width(SafeDtype dtype) {
  CHECK(row_of(dtype).bits % 8 == 0);
  return row_of(dtype).bits / 8;
}

SafeDtype stored_as(Dtype dtype) {
  CHECK(dtype != Dtype::real);
  const auto* at = std::ranges::find(kStored, std::optional(dtype), &StoredDtype::native);
  // Files of Octet's have powers of two as U8 that the metadata name.
  if (at != std::end(kStored) && dtype != Dtype::e8m0) {
    return static_cast<SafeDtype>(at - std::begin(kStored));
  }
  CHECK(bytes_of(dtype, 1) == 1);
  return SafeDtype::u8;
}

TensorDecl tensor_decl(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  return {std::move(name), stored_as(dtype), std::move(shape), dtype};
}

uint64_t TensorDecl::n_bytes() const {
  const auto bits = static_cast<uint64_t>(row_of(stored).bits);
  const uint64_t most = static_cast<uint64_t>(INT64_MAX) / std::max<uint64_t>(bits / 8, 1);
  uint64_t n = 1;  // elements, but for extents of 0
  bool is_empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      throw Error(ErrorCode::bad_data, "[safetensors] '{}': expected extents of 0 or more, got {}",
                  name, extent);
    }
    if (extent == 0) is_empty = true;
    if (extent != 0 && n > most / static_cast<uint64_t>(extent)) {
      throw Error(ErrorCode::bad_data, "[safetensors] '{}': expected fewer than 2^63 bytes", name);
    }
    if (extent != 0) n *= static_cast<uint64_t>(extent);
  }
  if (!is_empty && n % 8 * bits % 8 != 0) {
    throw Error(ErrorCode::bad_data, "[safetensors] '{}': expected whole bytes, got {} x {} bits",
                name, n, bits);
  }
  return is_empty ? 0 : n / 8 * bits + n % 8 * bits / 8;
}

}  // namespace octet
