// The types of a GGUF file's tensors: blocks of ggml, each a row of one table. A block's values are
// those of the gguf package, bit by bit: products of a scale and a code are exact in f32 (but for
// Q6_K's, of 25 bits), so that each value is rounded once. Source: the GGUF specification and ggml.
//
//   F32, F16, BF16   one element a block
//   Q4_0, Q5_0, Q8_0   x = d q, q signed, 32 elements, d FP16
//   Q4_1, Q5_1         x = d q + m, q from 0 on, 32 elements, d and m FP16
//   Q4_K, Q5_K         x = (d s) q - (dmin m), 256 elements, s and m of 6 bits for each 32
//   Q6_K               x = (d s) q, 256 elements, s of 8 bits for each 16
//   MXFP4              x = 2^(e - 127) q, q an E2M1 number, 32 elements
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace octet {

enum class GgmlType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
  mxfp4 = 39
};

struct GgufBlock {
  GgmlType type;
  std::string_view name;
  int64_t elems, bytes;  // of a block
  void (*decode)(const std::byte* block, float* out);
  void (*decode_all)(const std::byte* blocks, int64_t n, float* out);
};
inline constexpr int64_t kMaxGgufBlock = 256;  // elements

const GgufBlock* find_gguf_block(uint32_t type);  // by ggml's number; null for others
std::string gguf_block_names();                   // "F32 (0), F16 (1), ..."

// Q8_0: d = amax / 127 in f32, q = x (1 / d) rounded half away from zero, d stored as FP16; of a
// block whose 1 / d is not finite q = 0. Equal to ggml's reference quantizer byte by byte. `values`
// are whole blocks of finite numbers; `out` has 34 bytes for each.
void encode_q8_0(std::span<const float> values, std::span<std::byte> out);

}  // namespace octet
