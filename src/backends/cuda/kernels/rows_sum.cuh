// The second stage of sums over rows: partial sums [n_parts, cols] in f32, added in a fixed order.
#pragma once

#include "backends/cuda/kernels/rows_access.cuh"

namespace octet::cuda {

// y[c] = sum over parts of partial[part, c]; nothing where y is absent. Zero parts give zeros.
void launch_sum_parts(const float* partial, int64_t n_parts, int64_t cols, const Wide& y,
                      cudaStream_t stream);

}  // namespace octet::cuda
