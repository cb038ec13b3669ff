#include "backends/cuda/kernels/ranks/meet.h"

#include <cuda.h>

#include "backends/cuda/launch/kernel.h"

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

CUstreamBatchMemOpParams wait_for_one(const uint32_t* flag) {
  CUstreamBatchMemOpParams op{};
  op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  op.waitValue.address = reinterpret_cast<CUdeviceptr>(flag);
  op.waitValue.value = 1;
  op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return op;
}
CUstreamBatchMemOpParams write_zero(uint32_t* flag) {
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = reinterpret_cast<CUdeviceptr>(flag);
  op.writeValue.value = 0;
  op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return op;
}

}  // namespace

void meet(const RankLinks& links, Meeting meeting, cudaStream_t stream) {
  if (links.n_ranks == 1) return;
  RankBoard* const own = links.board();
  const auto boards = links.boards();
  std::vector<CUstreamBatchMemOpParams> ops, resets;
  for (int r = 0; r < links.n_ranks; ++r) {
    if (r == links.rank) continue;
    check(cudaMemcpyAsync(&boards[r]->arrived[meeting][links.rank], &own->one, sizeof(own->one),
                          cudaMemcpyDefault, stream),
          "telling another rank that this one has come");
    ops.push_back(wait_for_one(&own->arrived[meeting][r]));
    resets.push_back(write_zero(&own->arrived[meeting][r]));
  }
  ops.insert(ops.end(), resets.begin(), resets.end());
  const CUresult result = batch_mem_op()(stream, static_cast<unsigned>(ops.size()), ops.data(), 0);
  if (result != CUDA_SUCCESS)
    throw ModuleError("[cuda] waiting for other ranks: error " + std::to_string(result) +
                      " of cuStreamBatchMemOp");
}

}  // namespace octet::cuda
