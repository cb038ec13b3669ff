#include "io/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "formats/codec.h"

namespace octet {
namespace {

constexpr int kSmall = 32, kLarge = 256;  // elements of a block

uint32_t byte_at(const std::byte* at, int i) {
  return static_cast<uint32_t>(at[i]);
}

float half_at(const std::byte* at) {
  uint16_t code = 0;
  std::memcpy(&code, at, sizeof code);
  return decode<Dtype::fp16>(code);
}

// Code i of 32 in 16 bytes: low nibbles are the first 16.
uint32_t nibble(const std::byte* codes, int i) {
  return byte_at(codes, i % 16) >> (i < 16 ? 0 : 4) & 15u;
}

// The same with a fifth bit of a word of 32.
uint32_t five_bits(const std::byte* codes, const std::byte* high, int i) {
  return nibble(codes, i) | (byte_at(high, i / 8) >> (i % 8) & 1u) << 4;
}

void decode_f32(const std::byte* block, float* out) {
  std::memcpy(out, block, sizeof(float));
}

void decode_f16(const std::byte* block, float* out) {
  *out = half_at(block);
}

void decode_bf16(const std::byte* block, float* out) {
  uint16_t code = 0;
  std::memcpy(&code, block, sizeof code);
  const uint32_t bits = uint32_t{code} << 16;
  std::memcpy(out, &bits, sizeof bits);
}

void decode_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < kSmall; ++i) out[i] = d * (static_cast<float>(nibble(block + 2, i)) - 8.0f);
}

void decode_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

void decode_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < kSmall; ++i)
    out[i] = d * (static_cast<float>(five_bits(block + 6, block + 2, i)) - 16.0f);
}

void decode_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int i = 0; i < kSmall; ++i)
    out[i] = d * static_cast<float>(five_bits(block + 8, block + 4, i)) + m;
}

void decode_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < kSmall; ++i)
    out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Scale and minimum of the k-th of eight groups: six bits each in 12 bytes, of which the last four
// groups have their two highest bits beside the first four's.
struct ScaleMin {
  uint32_t scale, min;
};
ScaleMin scale_min(const std::byte* packed, int k) {
  if (k < 4) return {byte_at(packed, k) & 63u, byte_at(packed, k + 4) & 63u};
  const uint32_t low = byte_at(packed, k + 4);
  return {(low & 15u) | (byte_at(packed, k - 4) >> 6 << 4),
          low >> 4 | (byte_at(packed, k) >> 6 << 4)};
}

// f16 d, f16 dmin, 12 bytes of scales; with `high` a fifth bit of each code, plane by group. Each
// 32 bytes of codes are two groups, the low nibbles the first.
void decode_k(const std::byte* block, const std::byte* high, const std::byte* codes, float* out) {
  const float d = half_at(block), d_min = half_at(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin of = scale_min(block + 4, group);
    const float scale = d * static_cast<float>(of.scale), min = d_min * static_cast<float>(of.min);
    for (int i = 0; i < 32; ++i) {
      uint32_t q = byte_at(codes, group / 2 * 32 + i) >> (group % 2 * 4) & 15u;
      if (high != nullptr) q |= (byte_at(high, i) >> group & 1u) << 4;
      out[group * 32 + i] = scale * static_cast<float>(q) - min;
    }
  }
}

void decode_q4_k(const std::byte* block, float* out) {
  decode_k(block, nullptr, block + 16, out);
}

void decode_q5_k(const std::byte* block, float* out) {
  decode_k(block, block + 16, block + 48, out);
}

// 128 bytes of low nibbles, 64 of two high bits, 16 signed scales, f16 d. In halves of 128
// elements, four rows of 32.
void decode_q6_k(const std::byte* block, float* out) {
  const float d = half_at(block + 208);
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128, row = i % 128 / 32, col = i % 32;
    const uint32_t low = byte_at(block, half * 64 + row % 2 * 32 + col) >> (row / 2 * 4) & 15u;
    const uint32_t high = byte_at(block, 128 + half * 32 + col) >> (row * 2) & 3u;
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + i / 16]));
    out[i] = scale * (static_cast<float>(low | high << 4) - 32.0f);
  }
}

// Half of 2^(e - 127), times twice an E2M1 number.
void decode_mxfp4(const std::byte* block, float* out) {
  constexpr float kDoubled[] = {0, 1, 2, 3, 4, 6, 8, 12};
  const uint32_t e = byte_at(block, 0);
  const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
  float d = 0;
  std::memcpy(&d, &bits, sizeof d);
  for (int i = 0; i < kSmall; ++i) {
    const uint32_t code = nibble(block + 1, i);
    // The code is an integer, which has no negative zero.
    const float q = kDoubled[code & 7u];
    out[i] = d * (code > 8 ? -q : q);
  }
}

// A type whose blocks are decoded one after the other without a call for each.
template <void (*kDecode)(const std::byte*, float*), int64_t kElems, int64_t kBytes>
constexpr GgufBlock block_of(GgmlType type, std::string_view name) {
  return {type, name, kElems, kBytes, kDecode, [](const std::byte* blocks, int64_t n, float* out) {
            for (int64_t i = 0; i < n; ++i) kDecode(blocks + i * kBytes, out + i * kElems);
          }};
}

constexpr GgufBlock kBlocks[] = {block_of<decode_f32, 1, 4>(GgmlType::f32, "F32"),
                                 block_of<decode_f16, 1, 2>(GgmlType::f16, "F16"),
                                 block_of<decode_bf16, 1, 2>(GgmlType::bf16, "BF16"),
                                 block_of<decode_q4_0, kSmall, 18>(GgmlType::q4_0, "Q4_0"),
                                 block_of<decode_q4_1, kSmall, 20>(GgmlType::q4_1, "Q4_1"),
                                 block_of<decode_q5_0, kSmall, 22>(GgmlType::q5_0, "Q5_0"),
                                 block_of<decode_q5_1, kSmall, 24>(GgmlType::q5_1, "Q5_1"),
                                 block_of<decode_q8_0, kSmall, 34>(GgmlType::q8_0, "Q8_0"),
                                 block_of<decode_q4_k, kLarge, 144>(GgmlType::q4_k, "Q4_K"),
                                 block_of<decode_q5_k, kLarge, 176>(GgmlType::q5_k, "Q5_K"),
                                 block_of<decode_q6_k, kLarge, 210>(GgmlType::q6_k, "Q6_K"),
                                 block_of<decode_mxfp4, kSmall, 17>(GgmlType::mxfp4, "MXFP4")};

}  // namespace

const GgufBlock* find_gguf_block(uint32_t type) {
  const auto* at = std::ranges::find(kBlocks, GgmlType{type}, &GgufBlock::type);
  return at == std::end(kBlocks) ? nullptr : at;
}

std::string gguf_block_names() {
  std::string names;
  for (const GgufBlock& block : kBlocks) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", block.name,
                         static_cast<uint32_t>(block.type));
  }
  return names;
}

void encode_q8_0(std::span<const float> values, std::span<std::byte> out) {
  CHECK(values.size() % kSmall == 0 && out.size() == values.size() / kSmall * 34);
  for (size_t at = 0; at < values.size(); at += kSmall) {
    const std::span<const float> block = values.subspan(at, kSmall);
    float amax = 0;
    for (const float x : block) amax = std::max(amax, std::fabs(x));
    const float d = amax / 127.0f, inverse = d == 0.0f ? 0.0f : 1.0f / d;
    std::byte* to = out.data() + at / kSmall * 34;
    const auto code = static_cast<uint16_t>(encode<Dtype::fp16>(d));
    std::memcpy(to, &code, sizeof code);
    for (size_t i = 0; i < kSmall; ++i) {
      const float q = std::isfinite(inverse) ? std::round(block[i] * inverse) : 0.0f;
      to[2 + i] = static_cast<std::byte>(static_cast<int8_t>(q));
    }
  }
}

}  // namespace octet
