// Rows of a KV cache replaced by new ones: params/move.h.
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/move/move.cuh"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 128;

// One row of x a block; in words where both sides allow it.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    write_rows(const CacheWriteParams p, const Word* x, const int32_t* positions, Word* cache) {
  wait_for_previous();
  start_next();
  const int64_t row = blockIdx.x, position = positions[row];
  if (position < 0 || position >= p.capacity) return;
  const int64_t n = p.row_bytes / static_cast<int64_t>(sizeof(Word));
  Word* to = cache + (row / p.rows * p.capacity + position) * n;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) to[i] = x[row * n + i];
}

}  // namespace

void write_cache(const CacheWriteParams& p, const Launch& args) {
  using S = octet::CacheWrite;
  void* const cache = args.results[S::next_cache];
  if (cache != args.operands[S::cache]) {
    const auto n_bytes = static_cast<size_t>(p.batch * p.capacity * p.row_bytes);
    check(cudaMemcpyAsync(cache, args.operands[S::cache], n_bytes, cudaMemcpyDeviceToDevice,
                          args.stream),
          "copying a cache");
  }
  const auto blocks = static_cast<unsigned>(p.batch * p.rows);
  const auto write = [&]<typename Word>(Word) {
    launch_early(write_rows<Word>, blocks, kThreads, args.stream, p, args.in<Word>(S::x),
                 args.in<int32_t>(S::positions), static_cast<Word*>(cache));
  };
  if (p.row_bytes % 16 == 0) {
    write(uint4{});
  } else {
    write(uint16_t{});
  }
}

}  // namespace octet::cuda
