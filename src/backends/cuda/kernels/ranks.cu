// Between the GPUs of one host. Contract: params/ranks.h.
#include <algorithm>

#include "backends/cuda/kernels/element.cuh"
#include "backends/cuda/module/context.h"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLimbs = kExactLimbs;

template <typename T>
struct Peers {
  T* at[kMostRanks];
};
template <typename T>
Peers<T> peers_of(const RankLinks& links, const void* own) {
  Peers<T> result{};
  std::ranges::copy(links.peers<T>(own), result.at);
  return result;
}

__device__ __forceinline__ void store_release(uint32_t* at, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

// Thread r tells rank r that this one has come, and waits until it has. Meetings are numbered, and
// a rank that is one ahead has come to this one too.
__global__ void meet(Peers<RankBoard> boards, int rank, int n_ranks) {
  __shared__ uint32_t number;
  RankBoard* own = boards.at[rank];
  if (threadIdx.x == 0) number = ++own->n_meetings;
  __syncthreads();
  const int other = static_cast<int>(threadIdx.x);
  if (other >= n_ranks) return;
  __threadfence_system();
  store_release(&boards.at[other]->arrived[rank], number);
  while (static_cast<int32_t>(load_acquire(&own->arrived[other]) - number) < 0) __nanosleep(100);
}

template <Dtype X, Dtype Y>
__global__ void __launch_bounds__(kThreads)
    sum_of_ranks(Peers<const Storage<X>> xs, const Storage<Y>* into, Storage<Y>* y, RankParams p) {
  constexpr int kEach = 16 / sizeof(Storage<X>);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kEach;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  for (; i < p.count; i += stride) {
    const int n = static_cast<int>(min(static_cast<int64_t>(kEach), p.count - i));
    float sum[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      sum[j] = into != nullptr && j < n ? to_float<Y>(into[i + j]) : 0.0f;
    const bool is_whole = n == kEach && p.first + i + kEach <= p.n;
    for (int r = 0; r < p.ranks; ++r) {
      const Storage<X>* x = xs.at[r] + p.first + i;
      alignas(16) Storage<X> values[kEach] = {};
      if (is_whole) {
        *reinterpret_cast<uint4*>(values) = *reinterpret_cast<const uint4*>(x);
      } else {
        for (int j = 0; j < n && p.first + i + j < p.n; ++j) values[j] = x[j];
      }
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const float value = to_float<X>(values[j]);
        sum[j] = r == 0 && into == nullptr ? value : sum[j] + value;
      }
    }
    for (int j = 0; j < n; ++j) y[i + j] = from_float<Y>(sum[j]);
  }
}

// NaN is larger than any number.
__global__ void max_of_floats(Peers<const float> xs, float* y, RankParams p) {
  for (int64_t i = threadIdx.x; i < p.count; i += kThreads) {
    float top = xs.at[0][i];
    for (int r = 1; r < p.ranks; ++r) {
      const float x = xs.at[r][i];
      top = isnan(x) || x > top ? x : top;
    }
    y[i] = top;
  }
}
__global__ void max_of_flags(Peers<const uint8_t> xs, uint8_t* y, RankParams p) {
  for (int64_t i = threadIdx.x; i < p.count; i += kThreads) {
    uint8_t any = 0;
    for (int r = 0; r < p.ranks; ++r) any |= xs.at[r][i];
    y[i] = any;
  }
}

// Adds 32 bits of a sum to each of three limbs (math/exact_sum.h).
__device__ void add_exactly(double x, unsigned long long* limbs) {
  if (!isfinite(x)) {
    atomicAdd(&limbs[kLimbs], 1ull);
    return;
  }
  if (!(x > 0)) return;
  const ExactParts parts = exact_parts(x);
  for (int i = 0; i < 3; ++i)
    atomicAdd(&limbs[parts.limb + i], static_cast<unsigned long long>(parts.bits[i]));
}

// A warp adds the squares of 256 elements, each lane eight, in a fixed order.
template <Dtype G>
__global__ void __launch_bounds__(kThreads)
    square_sums(const Storage<G>* g, int64_t n, int64_t* limbs) {
  __shared__ unsigned long long own[kLimbs + 1];
  if (threadIdx.x <= kLimbs) own[threadIdx.x] = 0;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * (kThreads / 32);
  int64_t block = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  for (; block * 256 < n; block += n_warps) {
    double sum = 0;
    for (int j = 0; j < 8; ++j) {
      const int64_t i = block * 256 + j * 32 + lane;
      const double x = i < n ? static_cast<double>(to_float<G>(g[i])) : 0.0;
      sum += x * x;
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    if (lane == 0) add_exactly(sum, own);
  }
  __syncthreads();
  if (threadIdx.x <= kLimbs && own[threadIdx.x] != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(limbs) + threadIdx.x, own[threadIdx.x]);
}

__global__ void clear_sum(int64_t* limbs) {
  if (threadIdx.x <= kLimbs) limbs[threadIdx.x] = 0;
}

struct NormPlaces {
  const float* clip;
  float *norm, *grad_scale;
  uint8_t* found;
};

__global__ void norm_of_sums(Peers<const int64_t> sums, int n_ranks, NormPlaces to) {
  int64_t limbs[kLimbs + 1] = {};
  for (int r = 0; r < n_ranks; ++r) {
    for (int i = 0; i <= kLimbs; ++i) limbs[i] += sums.at[r][i];
  }
  const bool finite = limbs[kLimbs] == 0;
  const double root = finite ? sqrt(exact_value(limbs)) : nan("");
  const double most = *to.clip;
  *to.norm = static_cast<float>(root);
  *to.grad_scale = most > 0 ? static_cast<float>(fmin(1.0, most / (root + 1e-6))) : 1.0f;
  *to.found = finite ? 0 : 1;
}

// A kernel between ranks: data moves while all are there.
class Collective : public Prepared {
 public:
  Collective(const Request& request, int64_t ranks)
      : context_(request.context), links_(request.context.links) {
    is_alone_ = ranks == 1;
    if (!is_alone_ && ranks != links_.n_ranks)
      throw ModuleError("[cuda] expected a program for " + std::to_string(links_.n_ranks) +
                        " ranks, got one for " + std::to_string(ranks));
  }
  void launch(const Launch& args) override {
    before(args);
    if (!is_alone_) meet_all(args.stream);
    move(args);
    if (!is_alone_) meet_all(args.stream);
  }

 protected:
  virtual void before(const Launch&) {}
  virtual void move(const Launch& args) = 0;
  unsigned grid(int64_t n_elems, int each) const {
    const int64_t blocks = (n_elems + int64_t{kThreads} * each - 1) / (int64_t{kThreads} * each);
    return static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, int64_t{context_.n_sm} * 4));
  }
  const RankLinks& links() const { return links_; }
  bool is_alone() const { return is_alone_; }

 private:
  void meet_all(cudaStream_t stream) const {
    Peers<RankBoard> boards{};
    std::ranges::copy(links_.boards(), boards.at);
    meet<<<1, 32, 0, stream>>>(boards, links_.rank, links_.n_ranks);
    check_launch("meet");
  }
  const Context& context_;
  const RankLinks& links_;
  bool is_alone_ = false;  // every rank computes the whole by itself
};

class AllGather : public Collective {
 public:
  explicit AllGather(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {}
  void move(const Launch& args) override {
    const int64_t width = dtype_bytes(p_.x);
    const auto parts = links().peers<const std::byte>(args.operands[0]);
    for (int step = 0; step < links().n_ranks; ++step) {  // each begins with its own
      const int r = (links().rank + step) % links().n_ranks;
      const int64_t first = std::min(p_.n, r * p_.shard);
      const int64_t n = std::min(p_.shard, p_.n - first);
      if (n == 0) continue;
      check(cudaMemcpyAsync(args.out<std::byte>(0) + first * width, parts[r],
                            static_cast<size_t>(n * width), cudaMemcpyDefault, args.stream),
            "all_gather");
    }
  }

 private:
  RankParams p_;
};

class ReduceRanks : public Collective {
 public:
  explicit ReduceRanks(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {
    if (p_.first < 0) p_.first = links().rank * p_.shard;
  }
  void move(const Launch& args) override {
    if (p_.count == 0) return;
    visit_wide(p_.x, [&]<Dtype X>() {
      visit_wide(p_.y, [&]<Dtype Y>() {
        const auto xs = peers_of<const Storage<X>>(links(), args.operands[Reduce::x]);
        const auto* into = p_.into ? args.in<Storage<Y>>(Reduce::into) : nullptr;
        sum_of_ranks<X, Y><<<grid(p_.count, 16 / sizeof(Storage<X>)), kThreads, 0, args.stream>>>(
            xs, into, args.out<Storage<Y>>(0), p_);
      });
    });
    check_launch("reduce_ranks");
  }

 private:
  RankParams p_;
};

class MaxOfRanks : public Collective {
 public:
  explicit MaxOfRanks(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {}
  void move(const Launch& args) override {
    if (p_.x == Dtype::boolean) {
      max_of_flags<<<1, kThreads, 0, args.stream>>>(
          peers_of<const uint8_t>(links(), args.operands[0]), args.out<uint8_t>(0), p_);
    } else {
      max_of_floats<<<1, kThreads, 0, args.stream>>>(
          peers_of<const float>(links(), args.operands[0]), args.out<float>(0), p_);
    }
    check_launch("max_of_ranks");
  }

 private:
  RankParams p_;
};

class ShardedNorm : public Collective {
 public:
  explicit ShardedNorm(const Request& request)
      : Collective(request, request.get<ShardedNormParams>().ranks) {
    const auto tail = request.tail<ShardedNormParams>();
    for (size_t i = 0; i + 1 < tail.size(); i += 2)
      gradients_.push_back({tail[i], static_cast<Dtype>(tail[i + 1])});
  }
  void before(const Launch& args) override {
    int64_t* const sum = sum_of(args);
    clear_sum<<<1, 32, 0, args.stream>>>(sum);
    for (size_t i = 0; i < gradients_.size(); ++i) {
      const auto [n, dtype] = gradients_[i];
      if (n == 0) continue;
      const unsigned blocks = grid(n, 32);
      visit_wide(dtype, [&, n = n]<Dtype G>() {
        square_sums<G><<<blocks, kThreads, 0, args.stream>>>(
            args.in<Storage<G>>(static_cast<int>(i) + 1), n, sum);
      });
    }
    check_launch("sharded_norm");
  }
  void move(const Launch& args) override {
    using S = octet::GlobalNorm;
    Peers<const int64_t> sums{};
    sums.at[0] = sum_of(args);
    if (!is_alone()) sums = peers_of<const int64_t>(links(), sums.at[0]);
    norm_of_sums<<<1, 1, 0, args.stream>>>(
        sums, is_alone() ? 1 : links().n_ranks,
        {args.in<float>(S::clip), args.out<float>(S::norm), args.out<float>(S::grad_scale),
         args.out<uint8_t>(S::found_nonfinite)});
    check_launch("sharded_norm");
  }

 private:
  int64_t* sum_of(const Launch& args) const {
    return is_alone() ? static_cast<int64_t*>(args.scratch) : links().board()->sum;
  }
  std::vector<std::pair<int64_t, Dtype>> gradients_;
};

void take_shard(const RankParams& p, const Launch& args) {
  const int64_t width = dtype_bytes(p.x), n = std::clamp<int64_t>(p.n - p.first, 0, p.count);
  auto* const y = args.out<std::byte>(0);
  if (n > 0)
    check(cudaMemcpyAsync(y, args.in<std::byte>(0) + p.first * width,
                          static_cast<size_t>(n * width), cudaMemcpyDefault, args.stream),
          "take_shard");
  if (n < p.count)
    check(
        cudaMemsetAsync(y + n * width, 0, static_cast<size_t>((p.count - n) * width), args.stream),
        "take_shard");
}

template <typename T>
std::unique_ptr<Prepared> make(const Request& request) {
  return std::make_unique<T>(request);
}

constexpr KernelRow kRows[] = {{KernelId::take_shard, stateless<RankParams, take_shard>},
                               {KernelId::all_gather, make<AllGather>},
                               {KernelId::reduce_ranks, make<ReduceRanks>},
                               {KernelId::max_of_ranks, make<MaxOfRanks>},
                               {KernelId::sharded_norm, make<ShardedNorm>}};

}  // namespace

std::span<const KernelRow> rank_kernels() {
  return kRows;
}

}  // namespace octet::cuda
