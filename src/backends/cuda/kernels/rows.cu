#include <vector>

#include "backends/cuda/kernels/rows_launch.cuh"

namespace octet::cuda {

std::span<const KernelRow> row_kernels() {
  static const std::vector<KernelRow> all = [] {
    std::vector<KernelRow> rows;
    for (const auto some : {row_layer_kernels(), norm_grad_kernels(), act_grad_kernels(),
                            grad_codes_kernels(), rope_kernels(), bias_kernels()}) {
      rows.insert(rows.end(), some.begin(), some.end());
    }
    return rows;
  }();
  return all;
}

}  // namespace octet::cuda
