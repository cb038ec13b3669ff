// The enumerators of every storage type, and their sizes and names. What a format's bits mean
// stands in formats/table.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/host_device.h"

namespace octet {

enum class Dtype : uint8_t {
  real,  // "a number": the only float of the Logical phase; it has no storage
  f32,
  bf16,
  fp16,
  e4m3,
  e5m2,
  hif8,
  e8m0,
  de8s,
  de8u,
  int8,
  i32,
  u32,
  i16,
  u16,
  u8,
  boolean,  // one byte, 0 or 1; the last
};
inline constexpr int kDtypeCount = static_cast<int>(Dtype::boolean) + 1;

// What is counted with, apart from the names: device code has no strings.
struct DtypeNumbers {
  int bytes;          // storage of one element; 0 for real
  bool is_float;      // takes part in differentiation
  bool is_quantized;  // eight-bit codes that need a scale to be values
};

OCTET_HOST_DEVICE constexpr DtypeNumbers dtype_numbers(Dtype dtype) {
  switch (dtype) {
    case Dtype::real:
      return {0, true, false};
    case Dtype::f32:
      return {4, true, false};
    case Dtype::bf16:
    case Dtype::fp16:
      return {2, true, false};
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::hif8:
    case Dtype::e8m0:
    case Dtype::de8s:
    case Dtype::de8u:
    case Dtype::int8:
      return {1, true, true};
    case Dtype::i32:
    case Dtype::u32:
      return {4, false, false};
    case Dtype::i16:
    case Dtype::u16:
      return {2, false, false};
    case Dtype::u8:
    case Dtype::boolean:
      return {1, false, false};
  }
  return {0, false, false};
}

OCTET_HOST_DEVICE constexpr int dtype_bytes(Dtype dtype) {
  return dtype_numbers(dtype).bytes;
}
constexpr bool is_float(Dtype dtype) {
  return dtype_numbers(dtype).is_float;
}
constexpr bool is_quantized(Dtype dtype) {
  return dtype_numbers(dtype).is_quantized;
}
// For kernels, which are instances of their dtypes and may not call the function.
template <Dtype D>
inline constexpr bool kIsQuantized = is_quantized(D);

inline constexpr std::array<std::string_view, kDtypeCount> kDtypeNames = {
    "real", "f32",  "bf16", "fp16", "e4m3", "e5m2", "hif8", "e8m0", "de8s",
    "de8u", "int8", "i32",  "u32",  "i16",  "u16",  "u8",   "bool"};

constexpr std::string_view dtype_name(Dtype dtype) {
  const auto i = static_cast<size_t>(dtype);
  return i < kDtypeNames.size() ? kDtypeNames[i] : "?";
}

// The enumerator with this name ("f16" is accepted for fp16), or nothing.
constexpr std::optional<Dtype> dtype_from_name(std::string_view name) {
  if (name == "f16") return Dtype::fp16;
  for (int i = 0; i < kDtypeCount; ++i) {
    if (dtype_name(static_cast<Dtype>(i)) == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

}  // namespace octet
