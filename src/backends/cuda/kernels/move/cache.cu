// Rows of a KV cache replaced by new ones: params/move.h.
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/move/move.cuh"
#include "backends/cuda/launch/join.h"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 128;

struct CacheRows {
  CacheWriteParams p;
  const void* x;
  const int32_t* positions;
  void* cache;
};

// One row of x a block; in words where all sides allow it.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    write_rows(const __grid_constant__ Parts<CacheRows> caches) {
  wait_for_previous();
  start_next();
  const PartBlock mine = part_of_block(caches);
  const CacheRows& a = caches.of[mine.part];
  const int64_t row = mine.block, position = a.positions[row];
  if (position < 0 || position >= a.p.capacity) return;
  const int64_t n = a.p.row_bytes / static_cast<int64_t>(sizeof(Word));
  Word* to = static_cast<Word*>(a.cache) + (row / a.p.rows * a.p.capacity + position) * n;
  const Word* from = static_cast<const Word*>(a.x) + row * n;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) to[i] = from[i];
}

class CacheWriter : public CacheKernel {
 public:
  explicit CacheWriter(const Request& request) : p_(request.get<CacheWriteParams>()) {}

  bool goes_with(const CacheWriter& other) const { return in_words() == other.in_words(); }
  void launch(const Launch& args) override {
    Parts<CacheRows> caches;
    add_to(caches, args);
    write(caches, args.stream);
  }
  void launch_joined(std::span<const Joined> all) override {
    const auto caches = join_parts<CacheRows>(*this, all);
    if (!caches) return Prepared::launch_joined(all);
    write(*caches, all[0].args.stream);
  }
  void add_to(Parts<CacheRows>& caches, const Launch& args) const {
    const CacheStep step = step_of(args);
    caches.add({p_, step.x, args.in<int32_t>(octet::CacheWrite::positions), step.cache},
               static_cast<unsigned>(p_.batch * p_.rows));
  }
  CacheStep step_of(const Launch& args) const override {
    using S = octet::CacheWrite;
    void* const cache = args.results[S::next_cache];
    if (cache != args.operands[S::cache]) {
      const auto n_bytes = static_cast<size_t>(p_.batch * p_.capacity * p_.row_bytes);
      check(cudaMemcpyAsync(cache, args.operands[S::cache], n_bytes, cudaMemcpyDeviceToDevice,
                            args.stream),
            "copying a cache");
    }
    return {args.operands[S::x], cache};
  }

 private:
  bool in_words() const { return p_.row_bytes % 16 == 0; }
  void write(const Parts<CacheRows>& caches, cudaStream_t stream) const {
    launch_early(in_words() ? write_rows<uint4> : write_rows<uint16_t>,
                 {caches.n_blocks(), kThreads}, stream, caches);
  }

  CacheWriteParams p_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_cache_write(const Request& request) {
  return std::make_unique<CacheWriter>(request);
}

}  // namespace octet::cuda
