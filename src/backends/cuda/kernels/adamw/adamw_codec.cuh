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
inline constexpr int kRunsOf = C == Codec::expanded ? 2 : 1;
template <Codec C>
inline constexpr int kEachOf = kRunsOf<C>* kRun;  // elements of a lane, of one group
template <Codec C>
inline constexpr int kLanesOf = static_cast<int>(kMomentGroup) / kEachOf<C>;  // of a group
template <Codec C>
inline constexpr bool kBothCoded = C == Codec::expanded || C == Codec::codes;

template <Dtype D>  // of the largest code's value, and of that by the least's
inline constexpr float kLog2Target = D == Dtype::e4m3 ? 8.80735492f : 15.8073549f;
template <Dtype D>
inline constexpr float kLog2Range = D == Dtype::e4m3 ? 17.8073549f : 31.8073549f;
inline constexpr uint32_t kSign = 0x80000000u;

// Shared memory. A row of the first table is a code's: 32 words for m, 32 for v, one a lane, so
// that no two lanes meet in a bank, and a byte of codes is an address as it stands. The second says
// by 16k: 1 / k, and the least log2(amax) with which the smallest code does not vanish.
inline constexpr int kRowBytes = 256;
inline constexpr int kCodesBytes = 256 * kRowBytes;
inline constexpr int kTableBytes = kCodesBytes + 256 * static_cast<int>(sizeof(float2));

// By the whole block.
__device__ __forceinline__ void fill_tables(char* tables) {
  const int column = static_cast<int>(threadIdx.x) % 16;  // of 16 bytes; the upper half is of v
  for (int row = static_cast<int>(threadIdx.x) / 16; row < 256;
       row += static_cast<int>(blockDim.x) / 16) {
    const float q = to_float<Dtype::e4m3>(static_cast<uint8_t>(row & 0x7F));
    const float log2_q = fast_log2(q) - kLog2Target<Dtype::e4m3>;
    const float x = column < 8 || row < 128 ? log2_q : __uint_as_float(kF32Nan);
    reinterpret_cast<float4*>(tables)[row * 16 + column] = make_float4(x, x, x, x);
  }
#pragma unroll 1
  for (int k16 = static_cast<int>(threadIdx.x); k16 < 256; k16 += static_cast<int>(blockDim.x)) {
    const float inv_k = k16 == 0 ? 1.0f : 16.0f * fast_inverse(static_cast<float>(k16));
    const float least =
        k16 == 0 ? -__uint_as_float(kF32Inf) : kLog2Range<Dtype::e4m3> * inv_k - 125.0f;
    reinterpret_cast<float2*>(tables + kCodesBytes)[k16] = make_float2(inv_k, least);
  }
}

// How the codes of a group are read, times a factor.
struct Decoding {
  float inv_k, log2_amax;
  bool far;  // the smallest code is not a normal number

  __device__ __forceinline__ float value(float log2_code) const {
    return fast_exp2(__fmaf_rn(log2_code, inv_k, log2_amax));
  }
};
__device__ __forceinline__ Decoding decoding_of(const char* tables, uint32_t meta,
                                                float log2_factor) {
  const float2 row = reinterpret_cast<const float2*>(tables + kCodesBytes)[meta & 0xFFu];
  const float log2_amax = fast_log2(meta_amax(meta));
  return {row.x, log2_amax + log2_factor, !(log2_amax >= row.y)};
}
// log2 of the magnitude of byte j by m's table or v's; NaN for NaN, and for a negative v.
template <bool kSecond>
__device__ __forceinline__ float log2_of_code(const char* tables, uint32_t lane, uint32_t codes,
                                              int j) {
  const uint32_t at = __byte_perm(codes, lane * 4, 0x5504u | (static_cast<uint32_t>(j) << 4));
  return *reinterpret_cast<const float*>(tables + at + (kSecond ? kRowBytes / 2 : 0));
}

// Bit patterns of magnitudes; amin of zeros alone is 0 or Inf. Patterns order as values do, and the
// machine compares three of them at once.
struct Extent {
  uint32_t amax, amin;
};

// The choice of a group's 16k: the whole part of 16 log2(448 / 2^-9) / log2(R).
struct Choice {
  float bits;  // 2^23 + 16k, so that its last bits are 16k
  float log2_amax;
  float real_k16;  // before it is cut
  float error;     // of that, relative
  bool empty;
};
// For an extent within what powers take, by the machine's logarithms.
__device__ __forceinline__ Choice choice_of(const Extent& extent) {
  const float amax = __uint_as_float((extent.amax + 127u) & ~127u);
  const float log2_amax = fast_log2(amax);
  const float log2_amin = fast_log2(__uint_as_float(extent.amin));
  const float inverse = fast_inverse(fmaxf(log2_amax - log2_amin, 1.0f));
  const float k16 = fminf(16.0f * kLog2Range<Dtype::e4m3> * inverse, kMaxK16 + 0.5f);
  const float error = __fmaf_rn(fabsf(log2_amin) * 0x1p-20f, inverse, 0x1p-20f);
  return {__fadd_rd(k16, 0x1p23f), log2_amax, k16, error,
          extent.amax < __float_as_uint(kMinExpansionAmax)};
}
// Whether it is so near a whole number that logarithms with an error of 2^-22 of themselves do not
// say on which side.
__device__ __forceinline__ bool is_doubtful(const Choice& choice) {
  const float rest = choice.real_k16 - (choice.bits - 0x1p23f);
  const float doubt = __fmaf_rn(choice.real_k16, choice.error, fabsf(rest - 0.5f));
  return (doubt > 0.5f) & !choice.empty;
}
// 16k to the letter of math/range.h.
static __device__ __noinline__ float exact_k16(uint32_t amax, uint32_t amin, float guess) {
  const uint32_t key = range_key(octet::range_of(__uint_as_float(amax), __uint_as_float(amin)));
  return static_cast<float>(choose_k16(key, guess, kRangeKeys<Dtype::e4m3, Moment::first>.limit));
}
__device__ __forceinline__ Choice exact_choice_of(const Extent& extent) {
  Choice choice = choice_of(extent);
  if (!choice.empty) {
    choice.bits = exact_k16((extent.amax + 127u) & ~127u, extent.amin, choice.real_k16) + 0x1p23f;
  }
  return choice;
}

// Metadata, and how codes are made with it: exponents are k log2|x| + offset.
struct Encoding {
  uint32_t meta;
  float k, offset;
};
__device__ __forceinline__ Encoding encoding_of(const Extent& extent, const Choice& choice) {
  if (choice.empty) return {0, 1.0f, -__uint_as_float(kF32Inf)};
  const uint32_t amax24 = (extent.amax + 127u) >> 7;
  const float k = __fmaf_rn(choice.bits, 0.0625f, -0x1p19f);
  return {__byte_perm(__float_as_uint(choice.bits), amax24, 0x6540), k,
          __fmaf_rn(-k, choice.log2_amax, kLog2Target<Dtype::e4m3>)};
}

// Whether the group is not empty and leaves what the powers take, or is not finite.
__device__ __forceinline__ bool is_far(const Extent& extent, uint32_t most) {
  return (extent.amax >= __float_as_uint(kMinExpansionAmax)) &
         ((extent.amax > most) | (extent.amin < 0x00800000u));
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

// How the elements of a group are written.
struct Powers {
  float k, offset;
};
__device__ __forceinline__ Powers powers_of(const Encoding& encoding, int lane) {
  constexpr int kLanes = kLanesOf<Codec::expanded>;
  return {__shfl_sync(~0u, encoding.k, lane, kLanes),
          __shfl_sync(~0u, encoding.offset, lane, kLanes)};
}
// A run of expanded E4M3, of m or of v, kBySums of whose every four powers go by sums.
__device__ __forceinline__ uint2 encode_m(const Powers& powers, const float* m) {
  const uint32_t sign = powers.offset > -0x1p100f ? kSign : 0;  // 0: empty, every code 0
  float y[kRun];
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    const float size = fast_exp2(__fmaf_rn(fast_log2(fabsf(m[j])), powers.k, powers.offset));
    y[j] = __uint_as_float(__float_as_uint(size) | (__float_as_uint(m[j]) & sign));
  }
  return encode8<Dtype::e4m3>(y, 1.0f);
}
template <int kBySums>
__device__ __forceinline__ uint2 encode_v(const Powers& powers, const float* v) {
  const float k = powers.k * 0x1p-5f, offset = __fmaf_rn(powers.offset, 0x1p-5f, 0.625f);
  float y[kRun];
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    const float log2_v = fast_log2(v[j]);
    y[j] = j % 4 < kBySums ? exp2_by_sums(__saturatef(__fmaf_rn(log2_v, k, offset)))
                           : fast_exp2(__fmaf_rn(log2_v, powers.k, powers.offset));
  }
  return encode8<Dtype::e4m3>(y, 1.0f);
}

}  // namespace octet::cuda
