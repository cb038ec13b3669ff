#include "backends/cuda/kernels/ranks/meet.h"

#include <cuda.h>

#include <algorithm>
#include <thread>

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

using Clock = std::chrono::steady_clock;

bool are_idle(const std::array<cudaStream_t, 2>& streams) {
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
bool become_idle(const std::array<cudaStream_t, 2>& streams, Clock::time_point until) {
  while (!are_idle(streams)) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

// Those that have not come to any meeting; where one has come to one, those that are not there.
std::string missing_ranks(const RankLinks& links, cudaStream_t beside) {
  RankBoard board{};
  check(cudaMemcpyAsync(&board, links.board(), sizeof(board), cudaMemcpyDeviceToHost, beside),
        "reading who has come");
  check(cudaStreamSynchronize(beside), "reading who has come");
  std::string names;
  for (int r = 0; r < links.n_ranks; ++r) {
    bool has_come = r == links.rank;
    for (const auto& meeting : board.arrived) has_come = has_come || meeting[r] != 0;
    if (!has_come) names += (names.empty() ? "" : ", ") + std::to_string(r);
  }
  return names;
}

// Whoever comes late finds nobody: this rank's error ends them all.
void pass_alone(const RankLinks& links, const std::array<cudaStream_t, 2>& streams,
                cudaStream_t beside) {
  const auto until = Clock::now() + std::chrono::seconds(5);
  RankBoard all{};
  for (auto& meeting : all.arrived) std::ranges::fill(meeting, 1u);
  while (!become_idle(streams, Clock::now() + std::chrono::milliseconds(1))) {
    if (Clock::now() > until) return;
    check(cudaMemcpyAsync(links.board()->arrived, all.arrived, sizeof(all.arrived),
                          cudaMemcpyHostToDevice, beside),
          "passing a meeting alone");
    check(cudaStreamSynchronize(beside), "passing a meeting alone");
  }
}

}  // namespace

void await_peers(const RankLinks& links, const std::array<cudaStream_t, 2>& streams,
                 cudaStream_t beside, std::chrono::milliseconds patience) {
  if (become_idle(streams, Clock::now() + patience)) return;
  const std::string names = links.n_ranks == 1 ? "" : missing_ranks(links, beside);
  if (links.n_ranks > 1) pass_alone(links, streams, beside);
  throw ModuleError("[ranks] rank " + std::to_string(links.rank) + " waited " +
                    std::to_string(patience.count() / 1000) + " s for " +
                    (names.empty() ? "its own GPU" : "rank " + names));
}

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
