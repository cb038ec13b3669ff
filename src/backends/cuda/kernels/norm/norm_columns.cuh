// Norms of codes in groups whose statistics are known, four codes at a time: codes to codes.
#pragma once

#include "backends/cuda/kernels/common/layer.cuh"

namespace octet::cuda {

// Operands of a norm along the columns of a group. No weight is 1, no bias -0, which change
// nothing.
template <bool kCentred>
struct GroupColumns {
  Raw<Form::bf16> weight, bias;

  __device__ __forceinline__ void load(const LayerArgs& a, int64_t col) {
    weight = part_of(a.weight, col, 0x3F803F80u);
    if constexpr (kCentred) bias = part_of(a.bias, col, 0x80008000u);
  }

 private:
  static __device__ __forceinline__ Raw<Form::bf16> part_of(const Unquantized& p, int64_t col,
                                                            uint32_t otherwise) {
    if (p.data != nullptr)
      return load_raw<Form::bf16, kChunk>(p.data, nullptr, {col, kChunk, INT64_MAX});
    const uint4 nothing = make_uint4(otherwise, otherwise, otherwise, otherwise);
    return {{nothing, nothing}};
  }
};

// Four columns of them.
template <bool kCentred>
struct FourColumns {
  float weight[4], bias[4];

  __device__ __forceinline__ FourColumns(const GroupColumns<kCentred>& columns, int word) {
    widen(columns.weight, word, weight);
    if constexpr (kCentred) widen(columns.bias, word, bias);
  }

 private:
  static __device__ __forceinline__ void widen(const Raw<Form::bf16>& raw, int word, float* v) {
    const uint4& at = raw.at[word / 2];
    unpack_bf16(word % 2 == 0 ? at.x : at.z, v);
    unpack_bf16(word % 2 == 0 ? at.y : at.w, v + 2);
  }
};

// normalize() of layer.cuh, encoded.
template <bool kCentred>
__device__ __forceinline__ uint32_t norm_word(uint32_t codes, float scale, const NormRow& row,
                                              const FourColumns<kCentred>& columns,
                                              float inv_scale) {
  float v[4];
  unpack_e4m3(codes, scale, v);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = normalized<kCentred>(v[i], row) * columns.weight[i];
    if constexpr (kCentred) v[i] += columns.bias[i];
  }
  return pack_codes<Dtype::e4m3>(v, inv_scale);
}

}  // namespace octet::cuda
