// Stores of the row kernels, rounded once: sixteen values of a Place; and loads and stores of one
// element of any type.
#pragma once

#include "backends/cuda/kernels/common/row_access.cuh"

namespace octet::cuda {

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <Dtype D>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  if constexpr (D == Dtype::bf16) {
    return pack_bf16(low, high);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}
// Four codes, the first in the lowest byte.
template <Dtype D>
__device__ __forceinline__ uint32_t pack_four(const float* v) {
  if constexpr (D == Dtype::e4m3 || D == Dtype::e5m2) {
    constexpr auto kKind = D == Dtype::e4m3 ? __NV_E4M3 : __NV_E5M2;
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(v[0], v[1]), __NV_SATFINITE, kKind);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(v[2], v[3]), __NV_SATFINITE, kKind);
    return low | (high << 16);
  } else {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(from_float<D>(v[i])) << (8 * i);
    return word;
  }
}
template <Dtype D>
__device__ __forceinline__ uint32_t pack_codes(const float* v, float inv_scale) {
  const float scaled[4] = {v[0] * inv_scale, v[1] * inv_scale, v[2] * inv_scale, v[3] * inv_scale};
  return pack_four<D>(scaled);
}

template <Dtype D>
__device__ __forceinline__ void pack_pairs(const float* v, uint32_t (&words)[kChunk / 2]) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) words[i] = pack_pair<D>(v[2 * i], v[2 * i + 1]);
}
// Sixteen of two bytes in accesses of W.
template <int W>
__device__ __forceinline__ void store_pairs(const Unquantized& y, const Place& p,
                                            const uint32_t (&words)[kChunk / 2]) {
#pragma unroll
  for (int j = 0; j < kChunk / W; ++j) {
    const int64_t at = p.at + j * p.step;
    if (at >= p.end) continue;
    auto* to = static_cast<uint16_t*>(y.data) + at;
    const uint32_t* from = words + j * (W / 2);
    if constexpr (W == 4) {
      *reinterpret_cast<uint2*>(to) = make_uint2(from[0], from[1]);
    } else {
#pragma unroll
      for (int i = 0; i < W / 8; ++i)
        reinterpret_cast<uint4*>(to)[i] =
            make_uint4(from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
    }
  }
}

// Sixteen codes of values one after another.
template <Dtype D>
__device__ __forceinline__ uint4 pack_piece(const float (&v)[kChunk], float inv_scale) {
  return make_uint4(pack_codes<D>(v, inv_scale), pack_codes<D>(v + 4, inv_scale),
                    pack_codes<D>(v + 8, inv_scale), pack_codes<D>(v + 12, inv_scale));
}
// Presence of a NaN among codes of e4m3.
class NanCodes {
 public:
  __device__ __forceinline__ void add(const uint4& codes) {
    carries_ |= carry(codes.x) | carry(codes.y);
    carries_ |= carry(codes.z) | carry(codes.w);
  }
  __device__ __forceinline__ bool any() const { return (carries_ & 0x80808080u) != 0; }

 private:
  static __device__ __forceinline__ uint32_t carry(uint32_t word) {
    return (word & 0x7F7F7F7Fu) + 0x01010101u;
  }
  uint32_t carries_ = 0;
};

// Sixteen values in accesses of W, as f32 or D.
template <int W, Dtype D = Dtype::bf16>
__device__ __forceinline__ void store_float(const Unquantized& y, const Place& p, const float* v) {
  if (y.dtype != Dtype::f32) {
    uint32_t words[kChunk / 2];
    pack_pairs<D>(v, words);
    return store_pairs<W>(y, p, words);
  }
#pragma unroll
  for (int j = 0; j < kChunk / W; ++j) {
    const int64_t at = p.at + j * p.step;
    if (at >= p.end) continue;
    auto* to = reinterpret_cast<float4*>(static_cast<float*>(y.data) + at);
#pragma unroll
    for (int i = 0; i < W / 4; ++i) {
      const float* x = v + j * W + 4 * i;
      to[i] = make_float4(x[0], x[1], x[2], x[3]);
    }
  }
}

template <Dtype D, int W>
__device__ __forceinline__ void store_codes(uint8_t* codes, const Place& p, const float* v,
                                            float inv_scale) {
#pragma unroll
  for (int j = 0; j < kChunk / W; ++j) {
    const int64_t at = p.at + j * p.step;
    if (at >= p.end) continue;
    uint32_t words[W / 4];
#pragma unroll
    for (int i = 0; i < W / 4; ++i) words[i] = pack_codes<D>(v + j * W + 4 * i, inv_scale);
    if constexpr (W == 4) {
      *reinterpret_cast<uint32_t*>(codes + at) = words[0];
    } else if constexpr (W == 8) {
      *reinterpret_cast<uint2*>(codes + at) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint4*>(codes + at) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

// One element of any type.
__device__ __forceinline__ float load_any(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::f32:
      return static_cast<const float*>(data)[i];
    case Dtype::bf16:
      return to_float<Dtype::bf16>(static_cast<const uint16_t*>(data)[i]);
    case Dtype::fp16:
      return to_float<Dtype::fp16>(static_cast<const uint16_t*>(data)[i]);
    default:
      return visit_quantized<is_gemm_operand>(
          dtype, [&]<Dtype D>() { return to_float<D>(static_cast<const uint8_t*>(data)[i]); });
  }
}
__device__ __forceinline__ float load_any(const Matrix& m, int64_t row, int64_t col) {
  const float value = load_any(m.data, m.dtype, row * m.cols + col);
  if (m.group == 0) return value;
  if (m.group == kOneGroup) return value * load_any(m.scales, m.scales_dtype, 0);
  const int64_t per_row = (m.cols + m.group - 1) / m.group;
  return value * load_any(m.scales, m.scales_dtype, row * per_row + col / m.group);
}
__device__ __forceinline__ float load_or(const Unquantized& v, int64_t i, float otherwise) {
  return v.data == nullptr ? otherwise : load_any(v.data, v.dtype, i);
}
__device__ __forceinline__ void store_any(const Unquantized& y, int64_t i, float value) {
  if (y.dtype == Dtype::f32) {
    static_cast<float*>(y.data)[i] = value;
  } else if (y.dtype == Dtype::bf16) {
    static_cast<uint16_t*>(y.data)[i] = from_float<Dtype::bf16>(value);
  } else {
    static_cast<uint16_t*>(y.data)[i] = from_float<Dtype::fp16>(value);
  }
}
__device__ __forceinline__ uint8_t encode_any(Dtype dtype, float value) {
  return visit_quantized<is_gemm_operand>(
      dtype, [&]<Dtype D>() -> uint8_t { return from_float<D>(value); });
}

}  // namespace octet::cuda
