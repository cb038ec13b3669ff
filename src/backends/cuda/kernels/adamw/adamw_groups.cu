// The step with both moments E4M3 or E5M2 in groups of 128, expanded or not, and fast powers, where
// adamw_expanded.cu does not take it; the second moment may be f32 or
// scaled FP16 too.
//
// A warp takes two groups at a time, sixteen lanes each, eight elements a lane: everything is read
// in accesses of 8 or 16 bytes, the next pair while this one is computed. The range of a group goes
// through shuffles; one half of its lanes then finds the metadata of m, the other of v. Powers are
// the machine's log2 and exp2. Pairs with anything unusual (NaN, Inf, a negative v, magnitudes near
// the ends of f32) take step_group instead, before anything of them is written.
#include <algorithm>

#include "backends/cuda/kernels/adamw/adamw_any.cuh"
#include "backends/cuda/kernels/adamw/adamw_copy.cuh"
#include "backends/cuda/kernels/adamw/adamw_words.cuh"
#include "backends/cuda/kernels/common/fast_math.cuh"

namespace octet::cuda {
namespace {

constexpr int kGroup = kMomentGroup;
constexpr int kEach = 8;  // elements a lane
constexpr int kPair = 32 * kEach;
constexpr int kThreads = 128;
// How the second moment is stored: in groups of codes, in f32, or in FP16 with a scale.
enum class SecondMoment : uint8_t { codes, f32, fp16 };
template <SecondMoment V>
constexpr int kBlocks = V == SecondMoment::codes ? 5 : 4;  // on one multiprocessor: registers
constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
static_assert(kPair == 2 * kGroup && kPair == kGroupPair);

// What decoding and encoding of one moment need, beside the metadata.
struct CodeFormat {
  float target, log2_target, log2_least;
  float least;       // of a nonzero value; 0: none
  uint32_t special;  // added to 7-bit codes, carries into bit 7 at Inf and NaN
  bool expand, e4m3;
};
struct CodeFormats {
  CodeFormat m, v;
};

constexpr CodeFormat code_format(const MomentParams& p, bool keeps_nonzero) {
  const bool e4m3 = p.dtype == Dtype::e4m3;
  return {.target = e4m3 ? 448.0f : 57344.0f,
          .log2_target = e4m3 ? 8.80735492f : 15.8073549f,
          .log2_least = e4m3 ? -17.8073549f : -31.8073549f,
          .least = !keeps_nonzero ? 0.0f
                   : e4m3         ? 0x1p-9f
                                  : 0x1p-16f,
          .special = e4m3 ? 0x01010101u : 0x04040404u,
          .expand = p.expand,
          .e4m3 = e4m3};
}
constexpr CodeFormats code_formats(const MomentParams& m, const MomentParams& v) {
  return {code_format(m, m.expand), code_format(v, true)};
}
// a / b to nearest, both in [1, 2).
__device__ __forceinline__ float divide_exactly(float a, float b) {
  const float rough = fast_inverse(b);
  const float inverse = __fmaf_rn(__fmaf_rn(-b, rough, 1.0f), rough, rough);
  float q = a * inverse;
  q = __fmaf_rn(__fmaf_rn(-b, q, a), inverse, q);
  return __fmaf_rn(__fmaf_rn(-b, q, a), inverse, q);
}
// A small integer as f32, without the slow conversion.
__device__ __forceinline__ float float_of_small(uint32_t x) {
  return __uint_as_float(0x4B000000u | x) - 8388608.0f;
}

// One pair of groups as it is read.
template <WeightStore S, Dtype G, SecondMoment V>
struct Raw {
  static constexpr int kGradWords = G == Dtype::f32 ? 8 : 4;
  static constexpr int kWeightWords = S == WeightStore::stochastic ? 4 : 8;
  static constexpr int kSecondWords = V == SecondMoment::codes  ? 2
                                      : V == SecondMoment::fp16 ? 4
                                                                : 8;
  uint32_t m[2], v[kSecondWords], meta_m, meta_v;
  uint32_t g[kGradWords], w[kWeightWords];
};

// i: this lane's first element.
template <WeightStore S, Dtype G, SecondMoment V>
__device__ __forceinline__ void load(const AdamwCall& call, int64_t i, Raw<S, G, V>& raw) {
  load_words<2>(call.m.from, i, raw.m);
  raw.meta_m = call.m.meta_from[i / kGroup];
  constexpr int kSecondWords = Raw<S, G, V>::kSecondWords;
  load_words<kSecondWords>(call.v.from, i * (kSecondWords / 2), raw.v);
  if constexpr (V == SecondMoment::codes) raw.meta_v = call.v.meta_from[i / kGroup];
  load_words<Raw<S, G, V>::kGradWords>(call.g, i * (G == Dtype::f32 ? 4 : 2), raw.g);
  if constexpr (S == WeightStore::remainder) {
    load_words<4>(call.w_from, i * 2, raw.w);
    load_words<4>(call.master_from, i * 2, raw.w + 4);
  } else if constexpr (S == WeightStore::stochastic) {
    load_words<4>(call.w_from, i * 2, raw.w);
  } else {
    load_words<8>(S == WeightStore::master ? call.master_from : call.w_from, i * 4, raw.w);
  }
}

template <WeightStore S, Dtype G, SecondMoment V>
__device__ __forceinline__ float gradient_at(const Raw<S, G, V>& raw, int j) {
  return G == Dtype::f32 ? __uint_as_float(raw.g[j]) : bf16_at(raw.g, j);
}
template <WeightStore S, Dtype G, SecondMoment V>
__device__ __forceinline__ float weight_at(const Raw<S, G, V>& raw, int j) {
  if constexpr (S == WeightStore::remainder) {
    return joined_at(raw.w, raw.w + 4, j);
  } else if constexpr (S == WeightStore::stochastic) {
    return bf16_at(raw.w, j);
  } else {
    return __uint_as_float(raw.w[j]);
  }
}

template <__nv_fp8_interpretation_t kKind>
__device__ __forceinline__ void unpack_codes(const uint32_t (&codes)[2], float (&q)[kEach]) {
#pragma unroll
  for (int j = 0; j < kEach; j += 2) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(codes[j / 4] >> (j % 4 * 8));
    const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, kKind)));
    q[j] = values.x, q[j + 1] = values.y;
  }
}

// Codes to values. Returns whether the metadata or a code is out of what the powers take.
template <bool kSigned>
__device__ __forceinline__ bool decode_codes(const CodeFormat& f, const uint32_t (&codes)[2],
                                             uint32_t meta, float (&x)[kEach]) {
  const float amax = meta_amax(meta);
  bool far = false;
  if (f.e4m3) {
    unpack_codes<__NV_E4M3>(codes, x);
  } else {
    unpack_codes<__NV_E5M2>(codes, x);
  }
  if (f.expand) {
    const float k = meta == 0 ? 1.0f : float_of_small(meta & 0xFFu) * 0.0625f;
    const float rough = fast_inverse(k);
    const float inv_k = __fmaf_rn(__fmaf_rn(-k, rough, 1.0f), rough, rough);
    const float top = fast_log2(f.target);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float size = fast_exp2((fast_log2(fabsf(x[j])) - top) * inv_k) * amax;
      x[j] = kSigned ? copysignf(size, x[j]) : size;
    }
    const float lowest = f.log2_least * inv_k;
    far = meta != 0 && !(lowest > -125.0f && lowest + fast_log2(amax) > -125.0f && amax < 0x1p125f);
  } else {
#pragma unroll
    for (int j = 0; j < kEach; ++j) x[j] = __fdiv_rn(x[j], f.target) * amax;
  }
  const uint32_t special =
      ((codes[0] & 0x7F7F7F7Fu) + f.special) | ((codes[1] & 0x7F7F7F7Fu) + f.special);
  const uint32_t negative = kSigned ? 0u : codes[0] | codes[1];
  return far || ((special | negative) & 0x80808080u) != 0;
}

template <__nv_fp8_interpretation_t kKind>
__device__ __forceinline__ void pack_codes(const float (&y)[kEach], uint32_t (&codes)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 low = make_float2(y[4 * i], y[4 * i + 1]);
    const float2 high = make_float2(y[4 * i + 2], y[4 * i + 3]);
    codes[i] = __nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, kKind) |
               static_cast<uint32_t>(__nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, kKind)) << 16;
  }
}

// Values to codes with this metadata; 0 for metadata 0.
template <bool kSigned>
__device__ __forceinline__ void encode_codes(const CodeFormat& f, const float (&x)[kEach],
                                             uint32_t meta, uint32_t (&codes)[2]) {
  const float amax = meta_amax(meta);
  float y[kEach];
  if (f.expand) {
    const float k = float_of_small(meta & 0xFFu) * 0.0625f;
    const float inverse = fast_inverse(amax);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float log2_ratio = fast_log2(fabsf(x[j]) * inverse);
      const float size = fast_exp2(__fmaf_rn(log2_ratio, k, f.log2_target));
      y[j] = kSigned ? copysignf(size, x[j]) : size;
    }
  } else {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float size = __fdiv_rn(fabsf(x[j]), amax) * f.target;
      y[j] = copysignf(x[j] != 0.0f ? fmaxf(size, f.least) : size, x[j]);
    }
  }
  if (f.e4m3) {
    pack_codes<__NV_E4M3>(y, codes);
  } else {
    pack_codes<__NV_E5M2>(y, codes);
  }
  if (meta == 0) codes[0] = codes[1] = 0;
}

struct Extent {
  float amax, amin;
};

// The extent of both moments (or twice of one) over the sixteen lanes of a group: lanes with bit 3
// clear get that of m, the others that of v. amin of zeros alone is Inf.
template <bool kZerosCount>
__device__ __forceinline__ Extent group_extent(const float (&m)[kEach], const float (&v)[kEach],
                                               bool second) {
  const float inf = __uint_as_float(kF32Inf);
  Extent of_m{0, inf}, of_v{0, inf};
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const float size = fabsf(m[j]);
    of_m = {fmaxf(of_m.amax, size), fminf(of_m.amin, kZerosCount || size > 0 ? size : inf)};
    const float size_v = fabsf(v[j]);
    of_v = {fmaxf(of_v.amax, size_v), fminf(of_v.amin, kZerosCount || size_v > 0 ? size_v : inf)};
  }
  const Extent sent = second ? of_m : of_v;
  Extent kept = second ? of_v : of_m;
  kept.amax = fmaxf(kept.amax, __shfl_xor_sync(kWholeWarp, sent.amax, 8));
  kept.amin = fminf(kept.amin, __shfl_xor_sync(kWholeWarp, sent.amin, 8));
#pragma unroll
  for (int step = 4; step > 0; step /= 2) {
    kept.amax = fmaxf(kept.amax, __shfl_xor_sync(kWholeWarp, kept.amax, step));
    kept.amin = fminf(kept.amin, __shfl_xor_sync(kWholeWarp, kept.amin, step));
  }
  return kept;
}

// As meta_of, for a normal amin.
__device__ __forceinline__ uint32_t group_meta(const CodeFormat& f, const Extent& extent) {
  if (!(extent.amax >= kMinExpansionAmax)) return 0;
  const uint32_t amax24 = expansion_amax24(extent.amax);
  if (!f.expand) return (amax24 << 8) | kPlainK16;
  const uint32_t hi = amax24 << 7, lo = __float_as_uint(extent.amin);
  float quotient = divide_exactly(__uint_as_float((hi & 0x007FFFFFu) | 0x3F800000u),
                                  __uint_as_float((lo & 0x007FFFFFu) | 0x3F800000u));
  uint32_t exponent = (hi >> 23) - (lo >> 23);
  if (quotient < 1.0f) {
    quotient *= 2.0f;
    --exponent;
  }
  const uint32_t key = (exponent << 23) | (__float_as_uint(quotient) & 0x007FFFFFu);
  const uint32_t* limit = f.e4m3 ? kRangeKeys<Dtype::e4m3, Moment::first>.limit
                                 : kRangeKeys<Dtype::e5m2, Moment::first>.limit;
  const float log2_range = float_of_small(exponent) + fast_log2(quotient);
  const float guess = -16.0f * f.log2_least * fast_inverse(log2_range);
  return (amax24 << 8) | static_cast<uint32_t>(choose_k16(key, guess, limit));
}

// Magnitudes that the fast powers do not take, and Inf.
__device__ __forceinline__ bool is_far(const CodeFormat& f, const Extent& extent) {
  if (!(extent.amax >= kMinExpansionAmax)) return false;
  if (!f.expand) return !is_finite(extent.amax);
  return !(extent.amax <= 0x1p100f && extent.amin >= fmaxf(0x1p-126f, extent.amax * 0x1p-100f));
}

// m, v and w of the lane's elements; NaN where a new w is not finite, else 0.
template <WeightStore S, Dtype G, SecondMoment V>
__device__ __forceinline__ float update(const AdamwConstants& k, const Raw<S, G, V>& raw,
                                        float (&m)[kEach], float (&v)[kEach], float (&w)[kEach]) {
  float bad = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const AdamwElement old{weight_at(raw, j), m[j], v[j]};
    const AdamwElement next = adamw_element(k, old, gradient_at(raw, j));
    w[j] = next.w, m[j] = next.m, v[j] = next.v;
    bad = __fmaf_rn(w[j], 0.0f, bad);
  }
  return bad;
}

// Eight finite weights from element i on.
template <WeightStore S>
__device__ __forceinline__ void store_weights(const AdamwCall& call, int64_t i,
                                              const float (&w)[kEach]) {
  uint32_t hi[4], rest[8];
#pragma unroll
  for (int j = 0; j < kEach; j += 2) {
    const uint32_t a = __float_as_uint(w[j]), b = __float_as_uint(w[j + 1]);
    if constexpr (S == WeightStore::remainder) {
      hi[j / 2] = __byte_perm(a + 0x8000u, b + 0x8000u, 0x7632);
      rest[j / 2] = __byte_perm(a, b, 0x5410);
    } else {
      hi[j / 2] = __float_as_uint(0.0f);
      rest[j] = a, rest[j + 1] = b;
      if constexpr (S == WeightStore::master) {
        hi[j / 2] = from_float<Dtype::bf16>(w[j]) |
                    (static_cast<uint32_t>(from_float<Dtype::bf16>(w[j + 1])) << 16);
      }
    }
  }
  if constexpr (S == WeightStore::stochastic) {
    const RandomStream random = stream_of<UpdateDraw::weight>(call);
    const PhiloxKey key{static_cast<uint32_t>(random.name) ^ random.seed,
                        static_cast<uint32_t>(random.name >> 32)};
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const auto counter =
          static_cast<uint64_t>(call.origin + i) / 4 + static_cast<uint64_t>(block);
      const PhiloxBlock words = philox(key, counter, random.step);
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const uint32_t a = __float_as_uint(w[block * 4 + j]) + (words.word[j] >> 16);
        const uint32_t b = __float_as_uint(w[block * 4 + j + 1]) + (words.word[j + 1] >> 16);
        hi[block * 2 + j / 2] = __byte_perm(a, b, 0x7632);
      }
    }
  }
  if constexpr (S != WeightStore::plain) store_words<4>(call.w_to, i * 2, hi);
  if constexpr (S == WeightStore::remainder) store_words<4>(call.master_to, i * 2, rest);
  if constexpr (S == WeightStore::plain) store_words<8>(call.w_to, i * 4, rest);
  if constexpr (S == WeightStore::master) store_words<8>(call.master_to, i * 4, rest);
}

// Eight second moments that are no codes.
template <SecondMoment V>
__device__ __forceinline__ void unpack_second(const AdamwCall& call, const uint32_t* words,
                                              float (&v)[kEach]) {
  const float scale = V == SecondMoment::fp16 ? scale_of_v(call) : 1.0f;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if constexpr (V == SecondMoment::f32) {
      v[j] = __uint_as_float(words[j]);
    } else {
      v[j] = to_float<Dtype::fp16>(static_cast<uint16_t>(words[j / 2] >> (j % 2 * 16))) * scale;
    }
  }
}
template <SecondMoment V>
__device__ __forceinline__ void store_second(const AdamwCall& call, int64_t i,
                                             const float (&v)[kEach]) {
  if constexpr (V == SecondMoment::f32) {
    uint32_t words[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) words[j] = __float_as_uint(v[j]);
    store_words<8>(call.v.to, i * 4, words);
  } else {
    uint32_t words[kEach / 2];
    const RandomStream stream = store_stream(call);
    const float inverse = 1.0f / scale_of_v(call);
#pragma unroll
    for (int first = 0; first < kEach; first += 4) {
      const PhiloxBlock random = stream.block(static_cast<uint64_t>(call.origin + i + first) / 4);
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const uint32_t low = store_fp16(v[first + j] * inverse, random.word[j], true);
        const uint32_t high = store_fp16(v[first + j + 1] * inverse, random.word[j + 1], true);
        words[(first + j) / 2] = low | high << 16;
      }
    }
    store_words<4>(call.v.to, i * 2, words);
  }
}

// One pair; i: this lane's first element.
template <WeightStore S, Dtype G, SecondMoment V>
__device__ __forceinline__ void update_pair(const AdamwCall& call, const CodeFormats& formats,
                                            const AdamwConstants& k, const Raw<S, G, V>& raw,
                                            int64_t i) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr bool kCodes = V == SecondMoment::codes;
  const bool second = (lane & 8) != 0;
  float m[kEach], v[kEach], w[kEach];
  bool odd = decode_codes<true>(formats.m, raw.m, raw.meta_m, m);
  if constexpr (V == SecondMoment::codes) {
    odd |= decode_codes<false>(formats.v, raw.v, raw.meta_v, v);
  } else {
    unpack_second<V>(call, raw.v, v);
  }
  const float bad = update(k, raw, m, v, w);
  odd |= bad != 0.0f;  // NaN
  const CodeFormat mine = second && kCodes ? formats.v : formats.m;
  const float(&other)[kEach] = kCodes ? v : m;
  Extent extent = group_extent<true>(m, other, second);
  if (__any_sync(kWholeWarp, extent.amin == 0.0f && extent.amax > 0.0f)) {
    extent = group_extent<false>(m, other, second);
  }
  odd |= is_far(mine, extent);
  if (__any_sync(kWholeWarp, odd)) {
    const int64_t first = i - lane * kEach;
    step_group<Formats::ieee>(call, first, kGroup);
    return step_group<Formats::ieee>(call, first + kGroup, kGroup);
  }
  const uint32_t meta = group_meta(mine, extent);
  const uint32_t meta_m = __shfl_sync(kWholeWarp, meta, lane & 16);
  uint32_t codes[2];
  store_weights<S>(call, i, w);
  encode_codes<true>(formats.m, m, meta_m, codes);
  store_words<2>(call.m.to, i, codes);
  if constexpr (!kCodes) {
    store_second<V>(call, i, v);
    if (lane % 16 == 0) call.m.meta_to[i / kGroup] = meta;
  } else {
    const uint32_t meta_v = __shfl_sync(kWholeWarp, meta, (lane & 16) + 8);
    encode_codes<false>(formats.v, v, meta_v, codes);
    store_words<2>(call.v.to, i, codes);
    if (lane % 8 == 0) (second ? call.v : call.m).meta_to[i / kGroup] = meta;
  }
}

template <WeightStore S, Dtype G, SecondMoment V>
__global__ void __launch_bounds__(kThreads, kBlocks<V>)
    update_pairs(const __grid_constant__ AdamwCall call,
                 const __grid_constant__ CodeFormats formats) {
  if (*call.found_nonfinite != 0) return copy_states(call);
  const AdamwConstants k = constants_of(call);
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kThreads / 32) * kPair;
  int64_t i = call.begin + warp * kPair + threadIdx.x % 32 * kEach;
  if (i >= call.end) return;  // whole warps: the elements are whole pairs
  Raw<S, G, V> now;
  load(call, i, now);
  for (; i < call.end; i += stride) {
    Raw<S, G, V> next = now;
    if (i + stride < call.end) load(call, i + stride, next);
    update_pair(call, formats, k, now, i);
    now = next;
  }
}

template <WeightStore S, Dtype G, SecondMoment V>
void launch_pairs(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  const int64_t wanted = ceil_div(call.end - call.begin, kPair * (kThreads / 32));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{n_sm} * kBlocks<V>));
  const CodeFormats formats = code_formats(call.p.m, call.p.v);
  update_pairs<S, G, V><<<blocks, kThreads, 0, stream>>>(call, formats);
  check_launch("adamw_step");
}

template <Dtype G, SecondMoment V>
void launch_pairs_for(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  switch (call.p.store) {
    case WeightStore::remainder:
      return launch_pairs<WeightStore::remainder, G, V>(call, n_sm, stream);
    case WeightStore::stochastic:
      return launch_pairs<WeightStore::stochastic, G, V>(call, n_sm, stream);
    case WeightStore::master:
      return launch_pairs<WeightStore::master, G, V>(call, n_sm, stream);
    case WeightStore::plain:
      return launch_pairs<WeightStore::plain, G, V>(call, n_sm, stream);
  }
}

template <SecondMoment V>
void launch_pairs_of(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  if (call.p.g == Dtype::bf16) return launch_pairs_for<Dtype::bf16, V>(call, n_sm, stream);
  launch_pairs_for<Dtype::f32, V>(call, n_sm, stream);
}

}  // namespace

void launch_adamw_groups(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  switch (call.p.v.dtype) {
    case Dtype::f32:
      return launch_pairs_of<SecondMoment::f32>(call, n_sm, stream);
    case Dtype::fp16:
      return launch_pairs_of<SecondMoment::fp16>(call, n_sm, stream);
    default:
      return launch_pairs_of<SecondMoment::codes>(call, n_sm, stream);
  }
}

}  // namespace octet::cuda
