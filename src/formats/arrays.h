// Encodes and decodes arrays of values where they lie, one value after another by formats/codec.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/philox.h"
#include "formats/codec.h"

namespace octet {

struct ArrayEncoding {
  Dtype format = Dtype::e4m3;
  Rounding rounding = Rounding::near;
  EncodeOptions options = {};           // source: the type of the values, f32, bf16 or fp16
  std::span<const uint32_t> bits = {};  // random words, one a value; empty: those of the seed
  uint32_t seed = 0;                    // of stochastic rounding without bits
};

// values: n of options.source; codes: n of the format. Any alignment; the two must not overlap.
// Throws ErrorCode::invalid_argument where sizes differ, the source is no such type, or the format
// does not define the rounding; ErrorCode::bad_data where bits are not one word a value.
void encode_array(const ArrayEncoding& encoding, std::span<const std::byte> values,
                  std::span<std::byte> codes);

// codes: n of the format; values: n f32. As above.
void decode_array(Dtype format, std::span<const std::byte> codes, std::span<std::byte> values);

// Values of f32 or of codes of a format, exact.
void decode_values(Dtype dtype, std::span<const std::byte> bytes, std::span<float> out);
std::vector<float> decode_values(Dtype dtype, std::span<const std::byte> bytes);

}  // namespace octet
