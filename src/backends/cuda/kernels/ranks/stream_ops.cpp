#include "backends/cuda/kernels/ranks/stream_ops.h"

#include <algorithm>

namespace octet::cuda {
namespace {

using BatchMemOp = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

// The driver's, asked for at run time, so that the module links to no driver.
BatchMemOp batch_mem_op() {
  static const BatchMemOp found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &function, 12000,
                                           cudaEnableDefault, &result),
          "asking the driver for cuStreamBatchMemOp");
    if (function == nullptr || result != cudaDriverEntryPointSuccess)
      throw ModuleError("[cuda] expected a driver with cuStreamBatchMemOp, got one without");
    return reinterpret_cast<BatchMemOp>(function);
  }();
  return found;
}

}  // namespace

CUstreamBatchMemOpParams wait_for_one(const uint32_t* flag) {
  CUstreamBatchMemOpParams op{};
  op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  op.waitValue.address = reinterpret_cast<CUdeviceptr>(flag);
  op.waitValue.value = 1;
  op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return op;
}
CUstreamBatchMemOpParams write_word(uint32_t* word, uint32_t value) {
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = reinterpret_cast<CUdeviceptr>(word);
  op.writeValue.value = value;
  op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return op;
}

void run_stream_ops(std::vector<CUstreamBatchMemOpParams>& ops, cudaStream_t stream) {
  const CUresult result = batch_mem_op()(stream, static_cast<unsigned>(ops.size()), ops.data(), 0);
  if (result != CUDA_SUCCESS)
    throw ModuleError("[cuda] waiting for other ranks: error " + std::to_string(result) +
                      " of cuStreamBatchMemOp");
}

bool are_idle(std::span<const cudaStream_t> streams) {
  return std::ranges::all_of(streams, [](cudaStream_t stream) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // it is no error here
      return false;
    }
    check(status, "running kernels between ranks");
    return true;
  });
}

}  // namespace octet::cuda
