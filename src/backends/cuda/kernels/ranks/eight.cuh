// Eight neighbours of a tensor, sixteen bytes at a time.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/common/element.cuh"

namespace octet::cuda {

// Eight neighbours of a tensor whose first `there` elements exist; zeros behind them.
template <Dtype D>
struct Eight {
  using Word = std::conditional_t<sizeof(Storage<D>) == 1, uint2, uint4>;
  static constexpr int kWords = 8 * sizeof(Storage<D>) / sizeof(Word);
  alignas(Word) Storage<D> at[8];

  __device__ static Eight load_whole(const Storage<D>* x, int64_t i) {
    Eight result;
#pragma unroll
    for (int k = 0; k < kWords; ++k)
      reinterpret_cast<Word*>(result.at)[k] = reinterpret_cast<const Word*>(x + i)[k];
    return result;
  }
  __device__ static Eight load(const Storage<D>* x, int64_t i, int64_t there) {
    if (i + 8 <= there) return load_whole(x, i);
    Eight result = {};
    for (int j = 0; j < 8 && i + j < there; ++j) result.at[j] = x[i + j];
    return result;
  }
  __device__ void store(Storage<D>* y, int64_t i, int64_t count) const {
    if (i + 8 <= count) {
#pragma unroll
      for (int k = 0; k < kWords; ++k)
        reinterpret_cast<Word*>(y + i)[k] = reinterpret_cast<const Word*>(at)[k];
    } else {
      for (int j = 0; j < 8 && i + j < count; ++j) y[i + j] = at[j];
    }
  }
};

}  // namespace octet::cuda
