#include "backends/cuda/module/table.h"

namespace octet::cuda {

PrepareFn find_kernel(int32_t kernel) {
  for (const auto rows :
       {gemm_kernels(), attention_kernels(), gated_delta_kernels(), layer_kernels(),
        norm_grad_kernels(), batch_norm_kernels(), activation_grad_kernels(), grad_codes_kernels(),
        rope_kernels(), bias_kernels(), quantize_kernels(), loss_kernels(), adamw_kernels(),
        move_kernels(), draw_kernels(), reduce_kernels(), rank_kernels()}) {
    for (const KernelEntry& row : rows) {
      if (static_cast<int32_t>(row.kernel) == kernel) return row.prepare;
    }
  }
  throw ModuleError("[cuda] the module has no kernel " + std::to_string(kernel));
}

}  // namespace octet::cuda
