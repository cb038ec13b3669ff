// The enumerators of every storage type, and their sizes and names. What a format's bits mean
// stands in formats/table.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

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

struct DtypeInfo {
  std::string_view name;
  int bytes;          // storage of one element; 0 for real
  bool is_float;      // takes part in differentiation
  bool is_quantized;  // eight-bit codes that need a scale to be values
};

constexpr DtypeInfo dtype_info(Dtype dtype) {
  switch (dtype) {
    case Dtype::real:
      return {"real", 0, true, false};
    case Dtype::f32:
      return {"f32", 4, true, false};
    case Dtype::bf16:
      return {"bf16", 2, true, false};
    case Dtype::fp16:
      return {"fp16", 2, true, false};
    case Dtype::e4m3:
      return {"e4m3", 1, true, true};
    case Dtype::e5m2:
      return {"e5m2", 1, true, true};
    case Dtype::hif8:
      return {"hif8", 1, true, true};
    case Dtype::e8m0:
      return {"e8m0", 1, true, true};
    case Dtype::de8s:
      return {"de8s", 1, true, true};
    case Dtype::de8u:
      return {"de8u", 1, true, true};
    case Dtype::int8:
      return {"int8", 1, true, true};
    case Dtype::i32:
      return {"i32", 4, false, false};
    case Dtype::u32:
      return {"u32", 4, false, false};
    case Dtype::i16:
      return {"i16", 2, false, false};
    case Dtype::u16:
      return {"u16", 2, false, false};
    case Dtype::u8:
      return {"u8", 1, false, false};
    case Dtype::boolean:
      return {"bool", 1, false, false};
  }
  return {"?", 0, false, false};
}

constexpr std::string_view dtype_name(Dtype dtype) {
  return dtype_info(dtype).name;
}
constexpr int dtype_bytes(Dtype dtype) {
  return dtype_info(dtype).bytes;
}
// Bytes of n elements: the one rule of sizes.
constexpr int64_t bytes_of(Dtype dtype, int64_t n) {
  return n * dtype_info(dtype).bytes;
}
constexpr bool is_float(Dtype dtype) {
  return dtype_info(dtype).is_float;
}
constexpr bool is_quantized(Dtype dtype) {
  return dtype_info(dtype).is_quantized;
}
// E8M0 is what scales are stored as, and has none itself.
constexpr bool needs_scale(Dtype dtype) {
  return is_quantized(dtype) && dtype != Dtype::e8m0;
}
// For kernels, which are instances of their dtypes and may not call the function.
template <Dtype D>
inline constexpr bool kIsQuantized = is_quantized(D);

// The enumerator with this name ("f16" is accepted for fp16), or nothing.
constexpr std::optional<Dtype> dtype_from_name(std::string_view name) {
  if (name == "f16") return Dtype::fp16;
  for (int i = 0; i < kDtypeCount; ++i) {
    if (dtype_name(static_cast<Dtype>(i)) == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

}  // namespace octet
