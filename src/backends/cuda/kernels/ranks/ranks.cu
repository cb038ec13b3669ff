// Between the GPUs of all ranks; sums are in reduce_ranks.cu. Contract: params/ranks.h.
#include "backends/cuda/kernels/ranks/collective.cuh"
#include "backends/cuda/kernels/ranks/squares.cuh"
#include "backends/cuda/launch/join.h"

namespace octet::cuda {
namespace {

// Copies that copy engines are slow at: within one GPU.
__global__ void __launch_bounds__(kRankThreads)
    copy_run(const std::byte* from, std::byte* to, int64_t n_bytes) {
  constexpr int kUnroll = 4;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRankThreads;
  const int64_t n = n_bytes / 16,
                thread = static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x;
  const auto* x = reinterpret_cast<const uint4*>(from);
  auto* y = reinterpret_cast<uint4*>(to);
  for (int64_t i = thread; i < n; i += kUnroll * stride) {
    uint4 values[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (i + k * stride < n) values[k] = x[i + k * stride];
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (i + k * stride < n) y[i + k * stride] = values[k];
    }
  }
  for (int64_t i = 16 * n + thread; i < n_bytes; i += stride) to[i] = from[i];
}

void copy_here(const std::byte* from, std::byte* to, int64_t n_bytes, const Launch& args) {
  if (n_bytes == 0) return;
  copy_run<<<grid_of(args.n_sm, n_bytes, 64), kRankThreads, 0, args.stream>>>(from, to, n_bytes);
  check_launch("copying a shard");
}

struct MaxPart {
  Peers<const float> xs;
  float* y;
  int64_t count;
};

// A block a part: y, and those of launches that are joined to it. NaN is larger than any number.
__global__ void max_of_floats(Peers<const float> xs, float* y, int n_ranks, RankParams p,
                              Parts<MaxPart> more) {
  const bool is_own = blockIdx.x == 0;
  const MaxPart part = is_own ? MaxPart{xs, y, p.count} : more.of[blockIdx.x - 1];
  for (int64_t i = threadIdx.x; i < part.count; i += kRankThreads) {
    float top = part.xs.at[0][i];
    for (int r = 1; r < n_ranks; ++r) {
      const float x = part.xs.at[r][i];
      top = isnan(x) || x > top ? x : top;
    }
    part.y[i] = top;
  }
}
__global__ void max_of_flags(Peers<const uint8_t> xs, uint8_t* y, int n_ranks, RankParams p) {
  for (int64_t i = threadIdx.x; i < p.count; i += kRankThreads) {
    uint8_t any = 0;
    for (int r = 0; r < n_ranks; ++r) any |= xs.at[r][i];
    y[i] = any;
  }
}

// Some tensors of one type, as many as kernel parameters hold; `end`: blocks of 256 elements of
// this one and those before it, or rows of sums.
struct Gradients {
  static constexpr int kMax = 128;
  const void* at[kMax];
  int64_t n[kMax], end[kMax];
  int count = 0;
};

// Which tensor the block is of, from `tensor` on, and which of its blocks it is.
__device__ int64_t find_tensor(const Gradients& g, int64_t block, int& tensor) {
  while (block >= g.end[tensor]) ++tensor;
  return block - (tensor == 0 ? 0 : g.end[tensor - 1]);
}

// Adds up what add(tensor, block, lane, limb) adds for each block of the tensors, a warp a block.
template <typename Add>
__device__ __forceinline__ void add_blocks(const Gradients& g, int64_t* limbs, const Add& add) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * (kRankThreads / 32);
  int64_t block = static_cast<int64_t>(blockIdx.x) * (kRankThreads / 32) + threadIdx.x / 32;
  int tensor = 0;
  Limb limb = 0;
  for (; block < g.end[g.count - 1]; block += n_warps) {
    const int64_t its = find_tensor(g, block, tensor);
    add(tensor, its, lane, limb);
  }
  if (lane <= kLimbs && limb != 0) atomicAdd(reinterpret_cast<Limb*>(limbs) + lane, limb);
}

template <Dtype G>
__global__ void __launch_bounds__(kRankThreads)
    square_sums(const __grid_constant__ Gradients g, int64_t* limbs) {
  add_blocks(g, limbs, [&](int tensor, int64_t block, int lane, Limb& limb) {
    const auto* const x = static_cast<const Storage<G>*>(g.at[tensor]);
    add_squares(Eight<G>::load(x, block * 256 + lane * 8, g.n[tensor]), lane, limb);
  });
}

// Sum of rows that store_squares has made.
__global__ void __launch_bounds__(kRankThreads)
    sum_of_rows(const __grid_constant__ Gradients g, int64_t* limbs) {
  add_blocks(g, limbs, [&](int tensor, int64_t row, int lane, Limb& limb) {
    if (lane <= kLimbs) limb += static_cast<const Limb*>(g.at[tensor])[row * (kLimbs + 1) + lane];
  });
}

__global__ void clear_sum(int64_t* limbs) {
  if (threadIdx.x <= kLimbs) limbs[threadIdx.x] = 0;
}

struct NormPlaces {
  const float* clip;
  float *norm, *grad_scale;
  uint8_t* found;
};

__global__ void add_limbs(Peers<const int64_t> sums, int64_t* total) {
  const auto limb = static_cast<int>(threadIdx.x);
  if (limb > kLimbs) return;
  int64_t sum = 0;
  for (int r = 0; r < kMaxRanks && sums.at[r] != nullptr; ++r) sum += sums.at[r][limb];
  total[limb] = sum;
}

__global__ void norm_of_sums(Peers<const int64_t> sums, NormPlaces to) {
  int64_t limbs[kLimbs + 1] = {};
  for (int r = 0; r < kMaxRanks && sums.at[r] != nullptr; ++r) {
    for (int i = 0; i <= kLimbs; ++i) limbs[i] += sums.at[r][i];
  }
  const bool finite = limbs[kLimbs] == 0;
  const double root = finite ? sqrt(exact_value(limbs)) : nan("");
  const double most = *to.clip;
  *to.norm = static_cast<float>(root);
  *to.grad_scale = most > 0 ? static_cast<float>(fmin(1.0, most / (root + 1e-6))) : 1.0f;
  *to.found = finite ? 0 : 1;
}

class AllGather : public Collective {
 public:
  explicit AllGather(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {
    const bool is_even = p_.n == p_.shard * p_.ranks;
    is_whole_ = is_even && !has_peers();
  }
  // The other ranks' parts, and at last its own. What comes from other hosts comes to the rank of
  // equal number there, and from it to the others of the host.
  void move(const Launch& args) override {
    const auto* const own = args.in<std::byte>(0);
    const Part mine = part_of(links().rank, args);
    if (is_whole_)
      return between().all_gather(own, args.out<std::byte>(0), mine.n_bytes, args.stream);
    if (has_hosts()) {
      exchange(args, [&](int host) {
        const Part theirs = part_of(host * links().n_local + links().local(), args);
        return Exchange{.give = own,
                        .give_bytes = mine.n_bytes,
                        .take = theirs.to,
                        .take_bytes = theirs.n_bytes};
      });
      if (has_peers()) within().barrier(args.stream);
    }
    for_peers([&](int local) {
      for (int host = 0; host < links().n_hosts(); ++host) {
        const Part part = part_of(host * links().n_local + local, args);
        const bool is_own = host == links().host() && !p_.in_place;
        const std::byte* const given = is_own ? own : part.to;
        within().bring(local, given, part.to, part.n_bytes, args.stream);
      }
    });
    if (!p_.in_place && mine.n_bytes > 0)
      check(cudaMemcpyAsync(mine.to, own, static_cast<size_t>(mine.n_bytes),
                            cudaMemcpyDeviceToDevice, args.stream),
            "placing a shard among the others");
  }

 private:
  struct Part {
    std::byte* to;
    int64_t n_bytes;
  };
  Part part_of(int r, const Launch& args) const {
    const int64_t width = dtype_bytes(p_.x), first = std::min(p_.n, r * p_.shard);
    return {args.out<std::byte>(0) + first * width, std::min(p_.shard, p_.n - first) * width};
  }

  RankParams p_;
  bool is_whole_ = false;  // one call that brings its own part, too
};

// Maximum of the ranks of the host, and then of the hosts in its place.
class MaxOfRanks : public Collective {
 public:
  explicit MaxOfRanks(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {}
  void move(const Launch& args) override {
    if (has_peers()) max_of_peers(args);
    if (!has_hosts()) return;
    const void* const x = has_peers() ? args.results[0] : args.operands[0];
    between().max_of(x, args.results[0], p_.count, is_flag() ? nccl::uint8 : nccl::uint32,
                     args.stream);
  }
  void launch_joined(std::span<const Joined> all) override {
    const auto more = join_parts<MaxPart>(*this, all.subspan(1));
    if (!more) return Prepared::launch_joined(all);
    begin(all.front().args);
    compare(all.front().args, *more);
    end(all.back().args);
  }
  // Hosts have another level behind that of peers.
  bool goes_with(const MaxOfRanks&) const { return !is_flag() && has_peers() && !has_hosts(); }
  void add_to(Parts<MaxPart>& parts, const Launch& args) const {
    parts.add({.xs = peers_of<const float>(links(), args.operands[0]),
               .y = args.out<float>(0),
               .count = p_.count},
              1);
  }

 private:
  bool is_flag() const { return p_.x == Dtype::boolean; }
  void max_of_peers(const Launch& args) const {
    if (!is_flag()) return compare(args, {});
    max_of_flags<<<1, kRankThreads, 0, args.stream>>>(
        peers_of<const uint8_t>(links(), args.operands[0]), args.out<uint8_t>(0), links().n_local,
        p_);
    check_launch("max_of_ranks");
  }
  void compare(const Launch& args, const Parts<MaxPart>& more) const {
    max_of_floats<<<1 + more.n_blocks(), kRankThreads, 0, args.stream>>>(
        peers_of<const float>(links(), args.operands[0]), args.out<float>(0), links().n_local, p_,
        more);
    check_launch("max_of_ranks");
  }
  RankParams p_;
};

class ShardedNorm : public Collective {
 public:
  explicit ShardedNorm(const Request& request)
      : Collective(request, request.get<ShardedNormParams>().ranks), turn_(links().n_norms++ % 2) {
    const auto tail = request.tail<ShardedNormParams>();
    for (size_t i = 0; i + 1 < tail.size(); i += 2)
      gradients_.push_back({tail[i], static_cast<Dtype>(tail[i + 1])});
  }
  void move(const Launch& args) override {
    add_squares(args);
    add_sums(args);
  }

 private:
  void add_squares(const Launch& args) const {
    int64_t* const sum = sum_of(args);
    clear_sum<<<1, 32, 0, args.stream>>>(sum);
    Gradients some{};
    for (size_t i = 0; i < gradients_.size(); ++i) {
      const auto [n, dtype] = gradients_[i];
      const bool is_summed = dtype == Dtype::u32;
      if (n > 0) {
        const int64_t before = some.count == 0 ? 0 : some.end[some.count - 1];
        some.at[some.count] = args.operands[i + 1];
        some.n[some.count] = n;
        some.end[some.count++] = before + (is_summed ? n / kSquareWords : (n + 255) / 256);
      }
      const bool is_last = i + 1 == gradients_.size() || gradients_[i + 1].second != dtype;
      if (some.count == 0 || !(is_last || some.count == Gradients::kMax)) continue;
      const unsigned blocks = grid_of(args.n_sm, some.end[some.count - 1] * 256, 32);
      if (is_summed) {
        sum_of_rows<<<blocks, kRankThreads, 0, args.stream>>>(some, sum);
      } else {
        visit_high_precision(dtype, [&]<Dtype G>() {
          square_sums<G><<<blocks, kRankThreads, 0, args.stream>>>(some, sum);
        });
      }
      some.count = 0;
    }
    check_launch("sharded_norm");
  }
  void add_sums(const Launch& args) const {
    using S = octet::GlobalNorm;
    const Peers<const int64_t> sums =
        is_alone() ? Peers<const int64_t>{{sum_of(args)}} : shared(args);
    norm_of_sums<<<1, 1, 0, args.stream>>>(
        sums, {args.in<float>(S::clip), args.out<float>(S::norm), args.out<float>(S::grad_scale),
               args.out<uint8_t>(S::found_nonfinite)});
    check_launch("sharded_norm");
  }

  // Sums that are to be added up still: of the ranks of the host, or of all in one.
  Peers<const int64_t> shared(const Launch& args) const {
    RankBoard& board = *links().board();
    int64_t* sum = board.sums[turn_];
    if (has_peers()) {
      within().barrier(args.stream);
      const auto sums = peers_of<const int64_t>(links(), sum);
      if (!has_hosts()) return sums;
      sum = board.sum_of_host;
      add_limbs<<<1, 32, 0, args.stream>>>(sums, sum);
    }
    between().add_sums(sum, args.stream);
    return {{sum}};
  }

  int64_t* sum_of(const Launch& args) const {
    return is_alone() ? static_cast<int64_t*>(args.scratch) : links().board()->sums[turn_];
  }
  int turn_;
  std::vector<std::pair<int64_t, Dtype>> gradients_;
};

void take_shard(const RankParams& p, const Launch& args) {
  const int64_t width = dtype_bytes(p.x), n = std::clamp<int64_t>(p.n - p.first, 0, p.count);
  auto* const y = args.out<std::byte>(0);
  copy_here(args.in<std::byte>(0) + p.first * width, y, n * width, args);
  if (n < p.count)
    check(
        cudaMemsetAsync(y + n * width, 0, static_cast<size_t>((p.count - n) * width), args.stream),
        "take_shard");
}

template <typename T>
std::unique_ptr<Prepared> make(const Request& request) {
  return std::make_unique<T>(request);
}

constexpr KernelEntry kRows[] = {{KernelId::take_shard, stateless<RankParams, take_shard>},
                                 {KernelId::all_gather, make<AllGather>},
                                 {KernelId::reduce_ranks, make_reduce_ranks},
                                 {KernelId::max_of_ranks, make<MaxOfRanks>},
                                 {KernelId::sharded_norm, make<ShardedNorm>}};

}  // namespace

std::span<const KernelEntry> rank_kernels() {
  return kRows;
}

}  // namespace octet::cuda
