// The second stage of sums over rows: partial sums [n_parts, cols] in f32, added in a fixed order.
#pragma once

#include "backends/cuda/kernels/common/row_store.cuh"

namespace octet::cuda {

struct PartsShape {
  int64_t n_parts = 0, cols = 0;
};
struct PartsResults {
  Unquantized first, second;
};
// y[c] = sum over parts of partial[part, c]; of the second result behind the first's partial sums,
// where it is there. Zero parts give zeros.
void launch_sum_parts(const float* partial, PartsShape shape, PartsResults y, cudaStream_t stream);

}  // namespace octet::cuda
