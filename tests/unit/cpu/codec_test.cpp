// The bulk codecs give the scalar bits on every vector target of this machine.
#include "backends/cpu/codec/codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/philox.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

constexpr Dtype kByteFormats[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::de8s, Dtype::de8u};
constexpr Dtype kFormatsOf16Bits[] = {Dtype::bf16, Dtype::fp16};

// Every upper half with lower halves at the edges of rounding, then random patterns.
std::vector<float> patterns() {
  std::vector<float> x;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      x.push_back(float_of(upper << 16 | lower));
    }
  }
  const RandomStream random{.name = name_hash("codec_test")};
  for (uint32_t i = 0; i < 300001; ++i) x.push_back(float_of(random.bits(i)));
  return x;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(bulk_codec, encode_gives_the_scalar_codes) {
  const std::vector<float> x = patterns();
  for (const Dtype format : kByteFormats) {
    for (const float inv_scale : {1.0f, 0.37f, 0x1p-100f}) {
      std::vector<uint8_t> want(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        want[i] = static_cast<uint8_t>(encode(format, x[i] * inv_scale));
      }
      for_each_target([&](const std::string& target) {
        SCOPED_TRACE(target);
        std::vector<uint8_t> got(x.size(), 0xA5);
        simd_codec(format).encode_f32(x.data(), x.size(), inv_scale, got.data());
        EXPECT_EQ(got, want) << dtype_name(format);
      });
      std::vector<uint8_t> got(x.size(), 0xA5);
      scalar_codec(format).encode_f32(x.data(), x.size(), inv_scale, got.data());
      EXPECT_EQ(got, want) << dtype_name(format);
    }
  }
}

TEST(bulk_codec, encode_of_bf16_gives_the_scalar_codes) {
  std::vector<uint16_t> x(65536);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  for (const Dtype format : kByteFormats) {
    std::vector<uint8_t> want(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      want[i] = static_cast<uint8_t>(encode(format, f32_from_bf16(x[i]) * 1.7f));
    }
    for_each_target([&](const std::string& target) {
      SCOPED_TRACE(target);
      std::vector<uint8_t> got(x.size(), 0xA5);
      simd_codec(format).encode_bf16(x.data(), x.size(), 1.7f, got.data());
      EXPECT_EQ(got, want) << dtype_name(format);
    });
  }
}

TEST(bulk_codec, decode_gives_the_scalar_values) {
  std::vector<uint8_t> codes(256 * 3 + 5);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (const Dtype format : kByteFormats) {
    for (const float scale : {1.0f, 0.3f, 0x1p-120f}) {
      std::vector<float> want(codes.size());
      for (size_t i = 0; i < codes.size(); ++i) want[i] = decode(format, codes[i]) * scale;
      for_each_target([&](const std::string& target) {
        SCOPED_TRACE(target);
        std::vector<float> got(codes.size(), -7.0f);
        simd_codec(format).decode_f32(codes.data(), codes.size(), scale, got.data());
        EXPECT_TRUE(same_bits(got, want)) << dtype_name(format) << " " << scale;
      });
    }
  }
}

TEST(bulk_codec, decode_to_bf16_is_exact) {
  std::vector<uint8_t> codes(256 + 3);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (const Dtype format : {Dtype::e4m3, Dtype::e5m2, Dtype::hif8}) {
    for_each_target([&](const std::string& target) {
      SCOPED_TRACE(target);
      std::vector<uint16_t> got(codes.size(), 0xA5A5);
      simd_codec(format).decode_bf16(codes.data(), codes.size(), got.data());
      for (size_t i = 0; i < codes.size(); ++i) {
        EXPECT_EQ(bits_of(f32_from_bf16(got[i])), bits_of(decode(format, codes[i])));
      }
    });
  }
}

TEST(bulk_codec, two_byte_formats_give_the_scalar_bits) {
  const std::vector<float> x = patterns();
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const Dtype format : kFormatsOf16Bits) {
    std::vector<uint16_t> want(x.size());
    scalar_codec(format).encode_16(x.data(), x.size(), want.data());
    std::vector<float> values(all.size());
    scalar_codec(format).decode_16(all.data(), all.size(), values.data());
    for_each_target([&](const std::string& target) {
      SCOPED_TRACE(target);
      std::vector<uint16_t> got(x.size(), 0xA5A5);
      simd_codec(format).encode_16(x.data(), x.size(), got.data());
      EXPECT_EQ(got, want) << dtype_name(format);
      std::vector<float> decoded(all.size(), -7.0f);
      simd_codec(format).decode_16(all.data(), all.size(), decoded.data());
      EXPECT_TRUE(same_bits(decoded, values)) << dtype_name(format);
    });
  }
}

TEST(bulk_codec, ragged_and_unaligned_spans_touch_only_their_elements) {
  const std::vector<float> x = patterns();
  for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    const Codec codec = simd_codec(Dtype::hif8);
    for (size_t n = 0; n <= 70; ++n) {
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{3}}) {
        const std::span<const float> in(x.data() + 91001 + shift, n);
        std::vector<uint8_t> codes(n + 8, 0xA5);
        codec.encode_f32(in.data(), n, 1.0f, codes.data() + shift);
        std::vector<float> back(n + 8, -7.0f);
        codec.decode_f32(codes.data() + shift, n, 1.0f, back.data() + shift);
        for (size_t i = 0; i < n + 8; ++i) {
          const bool inside = i >= shift && i < shift + n;
          EXPECT_EQ(codes[i], inside ? encode(Dtype::hif8, in[i - shift]) : 0xA5u);
          EXPECT_EQ(bits_of(back[i]),
                    inside ? bits_of(decode(Dtype::hif8, codes[i])) : bits_of(-7.0f));
        }
      }
    }
  });
}

// A kernel that wants one takes the slot for a fact.
TEST(bulk_codec, formats_have_the_functions_that_fit_them) {
  for (const auto find : {simd_codec, scalar_codec}) {
    EXPECT_EQ(find(Dtype::bf16).encode_f32, nullptr);
    EXPECT_NE(find(Dtype::bf16).encode_16, nullptr);
    EXPECT_EQ(find(Dtype::e4m3).encode_16, nullptr);
    EXPECT_NE(find(Dtype::de8s).decode_f32, nullptr);
    EXPECT_EQ(find(Dtype::de8s).decode_bf16, nullptr);
    EXPECT_NE(find(Dtype::e4m3).decode_bf16, nullptr);
    EXPECT_EQ(find(Dtype::e8m0).decode_f32, nullptr);
    EXPECT_THROW(find(Dtype::f32), Error);
  }
}

}  // namespace
}  // namespace octet::cpu
