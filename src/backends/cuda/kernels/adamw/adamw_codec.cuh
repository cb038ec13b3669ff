// How the tile kernels store moments (Codec), and the arithmetic of it for a lane's elements.
//
// Expanded E4M3 goes by the machine's logarithms and powers of two. With L the logarithm and P the
// power of two,
//
//   decode   |x| = P(log2(|q| / 448) / k + L(amax))    the logarithm of a code from a table, in
//                                                      shared memory, with a column for each lane
//   encode   q = E4M3(P(k L(|x|) + log2(448) - k L(amax)))
//
// Equal codes but for one in thousands, where that is one apart; the metadata is what math/range.h
// says of the values here. Codes of other kinds: the same without tables, or quotients.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_common.cuh"
#include "backends/cuda/kernels/common/fast_math.cuh"
#include "backends/cuda/kernels/common/vector8.cuh"

namespace octet::cuda {

// Both moments expanded E4M3; both E4M3 or E5M2, expanded or not; the first so, the second in f32,
// or in FP16 with a scale.
enum class Codec : uint8_t { expanded, codes, f32, fp16 };
inline constexpr int kRun = 8;  // consecutive elements of a lane
template <Codec C>
inline constexpr int kEachOf = C == Codec::expanded ? 2 * kRun : kRun;  // of a lane, in one group
template <Codec C>
inline constexpr int kLanesOf = static_cast<int>(kMomentGroup) / kEachOf<C>;  // of a group
template <Codec C>
inline constexpr bool kBothCoded = C == Codec::expanded || C == Codec::codes;

template <Dtype D>  // of the largest code's value, and of that by the least's
inline constexpr float kLog2Target = D == Dtype::e4m3 ? 8.80735492f : 15.8073549f;
template <Dtype D>
inline constexpr float kLog2Range = D == Dtype::e4m3 ? 17.8073549f : 31.8073549f;
inline constexpr uint32_t kSign = 0x80000000u;
inline constexpr float kLog2Nudge = 1.760992e-4f;  // of moment_range's factor

// Shared memory. A row of the first table is a code's: 32 words for m, 32 for v, one a lane, so
// that no two lanes meet in a bank, and a byte of codes is an address as it stands. The second says
// by 16k: 1 / k, and the least amax with which the smallest code does not vanish.
inline constexpr int kRowBytes = 256;
inline constexpr int kCodesBytes = 256 * kRowBytes;
inline constexpr int kTableBytes = kCodesBytes + 256 * static_cast<int>(sizeof(float2));

// By the whole block.
__device__ __forceinline__ void fill_tables(char* tables) {
  const int column = static_cast<int>(threadIdx.x) % 16;  // of 16 bytes; the upper half is of v
  for (int row = static_cast<int>(threadIdx.x) / 16; row < 256;
       row += static_cast<int>(blockDim.x) / 16) {
    const float q = to_float<Dtype::e4m3>(static_cast<uint8_t>(row & 0x7F));
    const float log2_q = fast_log2(q) - fast_log2(kFormatRow<Dtype::e4m3>.amax_target);
    const float x = column < 8 || row < 128 ? log2_q : __uint_as_float(kF32Nan);
    reinterpret_cast<float4*>(tables)[row * 16 + column] = make_float4(x, x, x, x);
  }
#pragma unroll 1
  for (int k16 = static_cast<int>(threadIdx.x); k16 < 256; k16 += static_cast<int>(blockDim.x)) {
    const float inv_k = k16 == 0 ? 1.0f : 16.0f * fast_inverse(static_cast<float>(k16));
    const float least = k16 == 0 ? 0.0f : fast_exp2(kLog2Range<Dtype::e4m3> * inv_k - 125.0f);
    reinterpret_cast<float2*>(tables + kCodesBytes)[k16] = make_float2(inv_k, least);
  }
}

// How the codes of a group are read, times a factor. The factor is a part of amax before its
// logarithm is rounded: added to the logarithm, a factor near 1 would be off by the same share of
// itself in every step.
struct Decoding {
  float inv_k, log2_amax;
  bool far;  // the smallest code is not a normal number

  __device__ __forceinline__ Decoding(const char* tables, uint32_t meta, float factor) {
    const float2 row = reinterpret_cast<const float2*>(tables + kCodesBytes)[meta & 0xFFu];
    const float amax = meta_amax(meta);
    inv_k = row.x, log2_amax = fast_log2(amax * factor), far = !(amax >= row.y);
  }
  // The magnitude of byte j by m's table or v's; NaN for NaN, and for a negative v.
  template <Moment M>
  __device__ __forceinline__ float value(const char* tables, uint32_t lane, uint32_t codes,
                                         int j) const {
    const uint32_t at = __byte_perm(codes, lane * 4, 0x5504u | (static_cast<uint32_t>(j) << 4));
    const char* column = tables + at + (M == Moment::second ? kRowBytes / 2 : 0);
    return fast_exp2(__fmaf_rn(*reinterpret_cast<const float*>(column), inv_k, log2_amax));
  }
};

// Constants of every element of expanded E4M3.
struct StepConstants {
  float beta1, beta2;
  float g_of_m, gg_of_v;      // (1 - beta1) s, (1 - beta2) s^2; s scales the gradient
  float size_of_v, size_eps;  // (sqrt(v / c2) + eps) c1 / lr = sqrt(v) size_of_v + size_eps
  float minus_decay;          // -lr weight_decay
  float most_v;               // above it products of four sizes leave f32
};
__device__ __forceinline__ StepConstants step_constants(const AdamwConstants& k) {
  StepConstants c{};
  c.beta1 = k.beta1, c.beta2 = k.beta2;
  c.g_of_m = k.rest1 * k.grad_scale;
  c.gg_of_v = k.rest2 * k.grad_scale * k.grad_scale;
  const float inv_rate = k.c1 * fast_inverse(k.lr);
  c.size_of_v = inv_rate * fast_inverse(fast_sqrt(k.c2));
  c.size_eps = k.eps * inv_rate;
  if (!(fabsf(c.size_eps) < 0x1p30f)) c.size_eps = __uint_as_float(kF32Nan);  // to step_group
  c.minus_decay = -k.lr * k.weight_decay;
  const float unit = fast_inverse(c.size_of_v);
  c.most_v = fminf(0x1p100f, 0x1p60f * unit * unit);
  return c;
}
// Bit patterns of magnitudes; amin of zeros alone is 0 or Inf. Patterns order as values do, and the
// machine compares three of them at once.
struct Extent {
  uint32_t amax, amin;

  __device__ __forceinline__ AbsRange range() const {
    return {__uint_as_float(amax), __uint_as_float(amin)};
  }
};
// The choice of a group's 16k: the whole part of 16 log2(448 / 2^-9) / log2(R).
struct Choice {
  float bits;  // 2^23 + 16k, so that its last bits are 16k
  float log2_amax;
  bool empty;
  bool doubtful;  // so near a whole number that the logarithms do not say on which side
};
// For an extent within what powers take, by the machine's logarithms: with errors of 2^-22 of
// themselves.
__device__ __forceinline__ Choice choice_of(const Extent& extent, uint32_t up) {
  const float log2_amax = fast_log2(__uint_as_float((extent.amax + up) & ~127u));
  const float log2_amin = fast_log2(__uint_as_float(extent.amin)) + kLog2Nudge;
  const float inverse = fast_inverse(fmaxf(log2_amax - log2_amin, 1.0f));
  const float k16 = fminf(16.0f * kLog2Range<Dtype::e4m3> * inverse, kMaxK16 + 0.5f);
  const float error = __fmaf_rn(fabsf(log2_amin) * 0x1p-20f, inverse, 0x1p-20f);
  const float bits = __fadd_rd(k16, 0x1p23f), rest = k16 - (bits - 0x1p23f);
  const bool empty = extent.amax < __float_as_uint(kMinExpansionAmax);
  const bool doubtful = __fmaf_rn(k16, error, fabsf(rest - 0.5f)) > 0.5f;
  return {bits, log2_amax, empty, !empty && doubtful};
}
// 16k to the letter of math/range.h.
static __device__ __noinline__ float exact_k16(const Extent& extent, uint32_t up) {
  return static_cast<float>(meta_k16(
      expansion_meta(moment_range(extent.range()), kThresholds<Dtype::e4m3, Moment::first>, up)));
}
// True if the group is not empty and leaves what the powers take, or is not finite.
__device__ __forceinline__ bool is_far(const Extent& extent, uint32_t most) {
  return (extent.amax >= __float_as_uint(kMinExpansionAmax)) &
         ((extent.amax > most) | (extent.amin < 0x00800000u));
}

// Metadata, and how codes are made with it: exponents are k log2|x| + offset.
struct Encoding {
  uint32_t meta;
  float k, offset;
};
__device__ __forceinline__ Encoding encoding_of(const Extent& extent, const Choice& choice,
                                                uint32_t up) {
  if (choice.empty) return {0, 1.0f, -__uint_as_float(kF32Inf)};
  const uint32_t amax24 = (extent.amax + up) >> 7;
  const float k = __fmaf_rn(choice.bits, 0.0625f, -0x1p19f);
  return {__byte_perm(__float_as_uint(choice.bits), amax24, 0x6540), k,
          __fmaf_rn(-k, choice.log2_amax, kLog2Target<Dtype::e4m3>)};
}
// Encoding that lane `lane` of a group's has: of codes without tables the metadata alone.
template <Codec C>
__device__ __forceinline__ Encoding encoding_at(const Encoding& mine, int lane) {
  constexpr int kLanes = kLanesOf<C>;
  if constexpr (C != Codec::expanded) return {__shfl_sync(~0u, mine.meta, lane, kLanes)};
  return {0, __shfl_sync(~0u, mine.k, lane, kLanes), __shfl_sync(~0u, mine.offset, lane, kLanes)};
}

// 2^x for x in [-20, 12] without the unit of powers, relative error below 4e-6; smaller x give
// 2^-20, which no code has. x = 32 y - 20, y below 0 counting as 0.
__device__ __forceinline__ float exp2_by_sums(float y) {
  constexpr float kRound = 12582912.0f - 20.0f;
  const float whole = __fmaf_rn(y, 32.0f, kRound);
  const float f = __fmaf_rn(y, 32.0f, -(whole - kRound));
  float p = __fmaf_rn(f, 0.009666368515f, 0.055921975842f);
  p = __fmaf_rn(p, f, 0.24022349038f);
  p = __fmaf_rn(p, f, 0.693121045203f);
  p = __fmaf_rn(p, f, 1.0f);
  return __uint_as_float((__float_as_uint(whole) << 23) + __float_as_uint(p));
}
// A run of expanded E4M3, kBySums of whose every four powers go by sums, those of v.
template <Moment M, int kBySums>
__device__ __forceinline__ uint2 encode_expanded(const Encoding& e, const float* x) {
  const float k = e.k * 0x1p-5f, offset = __fmaf_rn(e.offset, 0x1p-5f, 0.625f);
  // 0: empty, every code 0; v has no sign.
  const uint32_t sign = M == Moment::first && e.offset > -0x1p100f ? kSign : 0u;
  float y[kRun];
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    const float log2_x = fast_log2(M == Moment::first ? fabsf(x[j]) : x[j]);
    const float size = j % 4 < kBySums ? exp2_by_sums(__saturatef(__fmaf_rn(log2_x, k, offset)))
                                       : fast_exp2(__fmaf_rn(log2_x, e.k, e.offset));
    y[j] = __uint_as_float(__float_as_uint(size) | (__float_as_uint(x[j]) & sign));
  }
  return encode8<Dtype::e4m3>(y, 1.0f);
}

}  // namespace octet::cuda
