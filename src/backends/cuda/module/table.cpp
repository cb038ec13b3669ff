#include "backends/cuda/module/table.h"

namespace octet::cuda {

PrepareFn find_kernel(int32_t kernel) {
  for (const auto rows :
       {gemm_kernels(), row_kernels(), quantize_kernels(), move_kernels(), loss_kernels(),
        reduce_kernels(), update_kernels(), attention_kernels(), draw_kernels(), rank_kernels()}) {
    for (const KernelRow& row : rows) {
      if (static_cast<int32_t>(row.kernel) == kernel) return row.prepare;
    }
  }
  throw ModuleError("[cuda] the module has no kernel " + std::to_string(kernel));
}

}  // namespace octet::cuda
