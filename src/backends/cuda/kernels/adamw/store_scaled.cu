// f32 values as scaled FP16, rounded stochastically (math/master.h, base/philox.h): no more than
// memory takes.
#include <algorithm>

#include "backends/cuda/kernels/adamw/adamw.h"
#include "backends/cuda/kernels/adamw/adamw_draw.cuh"
#include "backends/cuda/kernels/adamw/adamw_words.cuh"
#include "backends/cuda/launch/context.h"
#include "base/integer.h"
#include "ir/ops/slots.h"
#include "math/master.h"

namespace octet::cuda {
namespace {

struct StoreTask {
  StoreScaledParams p;
  const float* x;
  const float* scale;
  const uint32_t* attempt;
  uint16_t* q;
};

constexpr int kStoreThreads = 256, kStoreEach = 8;

// Any cut of a tensor, any alignment.
__global__ void store_any(const __grid_constant__ StoreTask t) {
  const RandomStream random{
      .name = t.p.stream, .seed = t.p.seed, .step = *t.attempt, .micro_batch = 0};
  const float inverse = 1.0f / *t.scale;  // of a power of two
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < t.p.n; i += stride) {
    const uint32_t word = random.bits(static_cast<uint64_t>(t.p.first + i));
    t.q[i] = store_fp16(t.x[i] * inverse, word, t.p.keeps_positive);
  }
}

// Whole runs of eight elements, two blocks of words: what rounds of all blocks share is made once a
// thread, and the next run is read while this one is drawn for.
__global__ void __launch_bounds__(kStoreThreads, 4)
    store_runs(const __grid_constant__ StoreTask t, const __grid_constant__ RoundKeys keys) {
  const int64_t stride = int64_t{gridDim.x} * kStoreThreads * kStoreEach;
  int64_t i = (int64_t{blockIdx.x} * kStoreThreads + threadIdx.x) * kStoreEach;
  if (i >= t.p.n) return;
  uint32_t now[kStoreEach], next[kStoreEach];
  load_words<kStoreEach>(t.x, i * 4, now);
  const DrawShared shared = draw_shared(keys, 0, *t.attempt);
  const float inverse = 1.0f / *t.scale;  // of a power of two
  for (; i < t.p.n; i += stride) {
    if (i + stride < t.p.n) load_words<kStoreEach>(t.x, (i + stride) * 4, next);
    uint32_t packed[kStoreEach / 2];
#pragma unroll
    for (int j = 0; j < kStoreEach; j += 4) {
      const PhiloxBlock words =
          draw_block(keys, shared, static_cast<uint32_t>((t.p.first + i + j) / 4));
      const auto store = [&](int k) -> uint32_t {
        const float x = __uint_as_float(now[j + k]) * inverse;
        return store_fp16(x, words.word[k], t.p.keeps_positive);
      };
      packed[j / 2] = store(0) | store(1) << 16;
      packed[j / 2 + 1] = store(2) | store(3) << 16;
    }
    store_words<kStoreEach / 2>(t.q, i * 2, packed);
#pragma unroll
    for (int j = 0; j < kStoreEach; ++j) now[j] = next[j];
  }
}

// At once on the card: each thread goes on until nothing is left.
unsigned store_blocks(int n_sm, int64_t n_threads) {
  constexpr int kEachSm = 4;
  return static_cast<unsigned>(
      std::min<int64_t>(ceil_div(n_threads, kStoreThreads), int64_t{n_sm} * kEachSm));
}

class StoreScaledKernel : public Prepared {
 public:
  StoreScaledKernel(const StoreScaledParams& params, int n_sm)
      : p_(params),
        keys_(round_keys({.name = p_.stream, .seed = p_.seed, .step = 0, .micro_batch = 0})),
        // A run has two whole blocks of words, which a 32-bit counter finds.
        n_in_runs_(p_.first % 4 == 0 && (p_.first + p_.n) / 4 < int64_t{1} << 32
                       ? p_.n / kStoreEach * kStoreEach
                       : 0),
        run_blocks_(store_blocks(n_sm, n_in_runs_ / kStoreEach)),
        any_blocks_(store_blocks(n_sm, p_.n)) {}

  void launch(const Launch& args) override {
    using S = octet::StoreScaled;
    StoreTask t{.p = p_,
                .x = args.in<float>(S::x),
                .scale = args.in<float>(S::scale),
                .attempt = args.in<uint32_t>(S::attempt),
                .q = args.out<uint16_t>(S::q)};
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(t.x) % 16 == 0 && reinterpret_cast<uintptr_t>(t.q) % 16 == 0;
    const int64_t n = is_aligned ? n_in_runs_ : 0;
    if (n != 0) {
      t.p.n = n;
      store_runs<<<run_blocks_, kStoreThreads, 0, args.stream>>>(t, keys_);
    }
    if (n != p_.n) {
      t.p.n = p_.n - n, t.p.first += n, t.x += n, t.q += n;
      store_any<<<any_blocks_, kStoreThreads, 0, args.stream>>>(t);
    }
    check_launch("store_scaled");
  }

 private:
  StoreScaledParams p_;
  RoundKeys keys_;
  int64_t n_in_runs_;
  unsigned run_blocks_, any_blocks_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_store_scaled(const Request& request) {
  return std::make_unique<StoreScaledKernel>(request.get<StoreScaledParams>(),
                                             request.context.n_sm);
}

}  // namespace octet::cuda
