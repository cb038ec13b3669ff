// Tiles of sums of products as a card's tensor cores make them (math/tensor_sums.h): what one
// instruction after another leaves in a tile of running sums, with the bits of that rule on every
// vector target.
//
// Factors are packed once and read by all tiles of their row or column: for each block of products
// (32 of 8-bit floats, 16 of 16-bit ones), padded with zeros, exponents, magnitudes and signs
// apart. Values that are not finite are packed as zeros; tensor_gemm.cpp makes the sums that they
// are in.
#pragma once

#include <cstdint>

#include "math/tensor_sums.h"

namespace octet::cpu {

inline constexpr int64_t kTensorColumns = 16;  // of a packed panel of b

// Packed form of a factor. `planes` of each element: exponent, magnitude, sign.
enum class TensorPacking : uint8_t { bytes, halves };  // of 8-bit floats, of 16-bit ones
constexpr TensorPacking tensor_packing(const TensorSums& rule) {
  return rule.fp8 ? TensorPacking::bytes : TensorPacking::halves;
}
// Bytes of an element of one plane.
constexpr int64_t plane_bytes(TensorPacking packing) {
  return packing == TensorPacking::bytes ? 2 : 4;
}
constexpr int64_t packed_bytes(TensorPacking packing) {
  return 3 * plane_bytes(packing);
}

// A block of `outers` rows of a (1) or columns of b (kTensorColumns): planes of
// [block / step][outers][step] elements, step 2 of bytes and 1 of halves.
enum class PackedSide : uint8_t { a, b };
constexpr int64_t packed_block_bytes(const TensorSums& rule, PackedSide side) {
  return packed_bytes(tensor_packing(rule)) * rule.block *
         (side == PackedSide::a ? 1 : kTensorColumns);
}
// Words of a finite element in its planes; zeros never have the largest exponent.
struct PackedWords {
  int32_t exponent = 0, magnitude = 0, sign = 0;
};
PackedWords packed_words(const TensorSums& rule, PackedSide side, SumFactor value);
// Place of element (outer, k) of a block in its planes, and the number of a plane's elements.
constexpr int64_t plane_elems(const TensorSums& rule, PackedSide side) {
  return rule.block * (side == PackedSide::a ? 1 : kTensorColumns);
}
constexpr int64_t packed_index(const TensorSums& rule, PackedSide side, int64_t outer, int64_t k) {
  const int64_t step = tensor_packing(rule) == TensorPacking::bytes ? 2 : 1;
  return (k / step * (side == PackedSide::a ? 1 : kTensorColumns) + outer) * step + k % step;
}
struct PackedPlace {
  void* block;
  int64_t plane, at;  // plane_elems(), packed_index()
};
inline void write_packed(TensorPacking packing, const PackedPlace& place,
                         const PackedWords& words) {
  const auto [block, plane, at] = place;
  if (packing == TensorPacking::bytes) {
    auto* const to = static_cast<uint16_t*>(block) + at;
    to[0] = static_cast<uint16_t>(words.exponent);
    to[plane] = static_cast<uint16_t>(words.magnitude);
    to[2 * plane] = static_cast<uint16_t>(words.sign);
  } else {
    auto* const to = static_cast<int32_t*>(block) + at;
    to[0] = words.exponent, to[plane] = words.magnitude, to[2 * plane] = words.sign;
  }
}

// rows x kTensorColumns running sums: one instruction for each of n_blocks blocks.
//   a: blocks of one row lie behind each other, rows `a_stride` bytes apart; b: blocks of a panel
//   sums: [rows, kTensorColumns] f32, read and written     plain: by add_block, without vectors
struct TensorTile {
  const TensorSums* rule = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  float* sums = nullptr;
  int64_t rows = 0, n_blocks = 0, a_stride = 0;
  bool plain = false;
};
void add_tensor_blocks(const TensorTile& tile);

}  // namespace octet::cpu
