// Norms of codes in groups whose statistics are known, four codes at a time: codes to codes.
#pragma once

#include "backends/cuda/kernels/rows_layer.cuh"

namespace octet::cuda {

// Four columns of what a norm applies: no weight is 1, no bias -0, which change nothing.
struct FourColumns {
  float weight[4], bias[4];

  __device__ __forceinline__ FourColumns(const Affine<Form::groups>& affine, int word) {
    half_of(affine.weight, affine.has_weight, 0x3F803F80u, word, weight);
    half_of(affine.bias, affine.has_bias, 0x80008000u, word, bias);
  }

 private:
  static __device__ __forceinline__ void half_of(const Raw<Form::bf16>& raw, bool there,
                                                 uint32_t otherwise, int word, float* v) {
    const uint4& at = raw.at[word / 2];
    unpack_bf16(there ? (word % 2 == 0 ? at.x : at.z) : otherwise, v);
    unpack_bf16(there ? (word % 2 == 0 ? at.y : at.w) : otherwise, v + 2);
  }
};

// normalize() of rows_layer.cuh, encoded.
template <bool kCentred>
__device__ __forceinline__ uint32_t norm_word(uint32_t codes, float scale, const NormRow& row,
                                              const FourColumns& columns, float inv_scale) {
  float v[4];
  unpack_e4m3(codes, scale, v);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = (kCentred ? v[i] - row.mean : v[i]) * row.rstd * columns.weight[i];
    if constexpr (kCentred) v[i] += columns.bias[i];
  }
  return pack_codes<Dtype::e4m3>(v, inv_scale);
}

}  // namespace octet::cuda
