// Bulk encode and decode of spans on one thread, with the machine's vectors (Highway, chosen at run
// time) or without. Both paths give the bits of formats/codec.h: nearest rounding of the format,
// subnormals exact, NaN canonical.
//
//   encode: code[i] = encode(f32(x[i] * inv_scale))   8-bit formats saturate; bf16 and fp16 keep
//   overflow as Inf decode: x[i] = f32(decode(code[i]) * scale)       decode_bulk_bf16:
//   decode(code[i]) itself, which is exact
// DE8 takes the scalar path; E8M0 holds scales, not elements, and has none. Any length and
// alignment; the spans must not overlap. Throws ErrorCode::invalid_argument when sizes differ or
// the format does not fit the function.
#pragma once

#include <cstdint>
#include <span>

#include "formats/dtype.h"

namespace octet::cpu {

enum class CodecPath : uint8_t { simd, scalar };

// Formats of one byte.
void encode_bulk(Dtype format, std::span<const float> x, float inv_scale, std::span<uint8_t> codes,
                 CodecPath path = CodecPath::simd);
void decode_bulk(Dtype format, std::span<const uint8_t> codes, float scale, std::span<float> x,
                 CodecPath path = CodecPath::simd);

// x holds bf16 bits.
void encode_bulk_bf16(Dtype format, std::span<const uint16_t> x, float inv_scale,
                      std::span<uint8_t> codes, CodecPath path = CodecPath::simd);
// x receives bf16 bits, unscaled: e4m3, e5m2 or hif8.
void decode_bulk_bf16(Dtype format, std::span<const uint8_t> codes, std::span<uint16_t> x,
                      CodecPath path = CodecPath::simd);

// bf16 and fp16, unscaled.
void encode_bulk_16(Dtype format, std::span<const float> x, std::span<uint16_t> codes,
                    CodecPath path = CodecPath::simd);
void decode_bulk_16(Dtype format, std::span<const uint16_t> codes, std::span<float> x,
                    CodecPath path = CodecPath::simd);

}  // namespace octet::cpu
