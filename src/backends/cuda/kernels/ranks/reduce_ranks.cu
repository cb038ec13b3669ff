// Sums over ranks, in f32 and in a fixed order. Contract: params/ranks.h.
//
// Where there are peers and other hosts, a rank first adds the parts of the ranks of its host, of
// all that the ranks of its number on any host will keep; these exchange their hosts' sums, in f32,
// and each adds up those of its own run. So each of L ranks a host sends others of H hosts
// (H - 1) / H of an L-th of the tensor.
#include "backends/cuda/kernels/ranks/squares.cuh"

namespace octet::cuda {
namespace {

// Types that sums take: f32, bf16 and fp16 as they are, E4M3 times the tensor's scale.
template <typename F>
void visit_summand(Dtype dtype, F&& f) {
  if (dtype == Dtype::e4m3) return f.template operator()<Dtype::e4m3>();
  visit_high_precision(dtype, f);
}

// Summands, in order: `n` parts. The first kMaxRanks lie where `at` says; of the rest one
// may be this rank's, and the others lie behind each other, in order.
struct Summands {
  int n = 0, own_index = 0;
  const std::byte *own = nullptr, *others = nullptr;
  int64_t stride = 0;  // bytes from one of the others to the next
  const std::byte* at[kMaxRanks] = {};

  __host__ __device__ const std::byte* of(int i) const {
    return i == own_index ? own : others + (i - (i > own_index ? 1 : 0)) * stride;
  }
  void find() {
    for (int i = 0; i < std::min(n, kMaxRanks); ++i) {
      if (at[i] == nullptr) at[i] = of(i);
    }
  }
};

// Elements of the result, and how many of them the parts have; zeros behind.
struct SumSize {
  int64_t count = 0, there = 0;
};

// Eight elements, of those that parts have.
struct Neighbours {
  int64_t first = 0, there = 0;
};

// Adds up a run of eight neighbours. kWhole: all parts have all of them, so that loads are of whole
// words; two parts' are in flight together.
template <Dtype X, bool kWhole>
__device__ __forceinline__ void add_parts(const Summands& xs, bool is_first, float factor,
                                          Neighbours at, float (&sum)[8]) {
  constexpr int kTogether = 2;
  const auto load = [&](int r) {
    const auto* x = reinterpret_cast<const Storage<X>*>(r < kMaxRanks ? xs.at[r] : xs.of(r));
    return kWhole ? Eight<X>::load_whole(x, at.first) : Eight<X>::load(x, at.first, at.there);
  };
  for (int r = 0; r < xs.n; r += kTogether) {
    // Without a branch between them; of an odd number the last is loaded twice.
    Eight<X> parts[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) parts[k] = load(min(r + k, xs.n - 1));
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (r + k >= xs.n) return;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float plain = to_float<X>(parts[k].at[j]);
        const float value = kIsQuantized<X> ? __fmul_rn(plain, factor) : plain;
        sum[j] = r + k == 0 && is_first ? value : sum[j] + value;
      }
    }
  }
}

// squares: a row a block, of the result as it is stored.
template <Dtype X, Dtype Y, bool kSquares>
__global__ void __launch_bounds__(kRankThreads, kSquares ? 4 : 6)
    sum_of_ranks(const __grid_constant__ Summands xs, const float* scale, const Storage<Y>* into,
                 int64_t* squares, Storage<Y>* y, SumSize p) {
  const float factor = kIsQuantized<X> ? *scale : 1.0f;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRankThreads * 8;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x) * 8;
  [[maybe_unused]] Limb limb = 0;
  for (; i < p.count; i += stride) {
    float sum[8] = {};
    if (into != nullptr) {
      const auto values = Eight<Y>::load(into, i, p.count);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] = to_float<Y>(values.at[j]);
    }
    const bool is_first = into == nullptr;
    if (i + 8 <= p.there) {
      add_parts<X, true>(xs, is_first, factor, {i, p.there}, sum);
    } else {
      add_parts<X, false>(xs, is_first, factor, {i, p.there}, sum);
    }
    Eight<Y> result;
#pragma unroll
    for (int j = 0; j < 8; ++j) result.at[j] = from_float<Y>(sum[j]);
    result.store(y, i, p.count);
    // A warp has 256 neighbours; count is a multiple of them.
    if constexpr (kSquares) add_squares(result, static_cast<int>(threadIdx.x) % 32, limb);
  }
  if constexpr (kSquares) store_squares(limb, squares);
}

struct Sum {
  Dtype x, y;
  Summands parts;
  const float* scale = nullptr;  // of E4M3
  const void* into = nullptr;    // of y's type; null: there is none
  int64_t* squares = nullptr;    // null: none are wanted
  void* to = nullptr;
  SumSize size = {};
};

template <Dtype X, Dtype Y, bool kSquares>
void launch_sum_of(const Sum& sum, const Launch& args) {
  const int64_t count = sum.size.count;
  const unsigned blocks =
      kSquares ? static_cast<unsigned>(square_parts(count)) : grid_of(args.n_sm, count, 8);
  sum_of_ranks<X, Y, kSquares><<<blocks, kRankThreads, 0, args.stream>>>(
      sum.parts, sum.scale, static_cast<const Storage<Y>*>(sum.into), sum.squares,
      static_cast<Storage<Y>*>(sum.to), sum.size);
}

void launch_sum(Sum sum, const Launch& args) {
  if (sum.size.count == 0 && sum.squares == nullptr) return;
  sum.parts.find();
  visit_summand(sum.x, [&]<Dtype X>() {
    visit_high_precision(sum.y, [&]<Dtype Y>() {
      sum.squares != nullptr ? launch_sum_of<X, Y, true>(sum, args)
                             : launch_sum_of<X, Y, false>(sum, args);
    });
  });
  check_launch("reduce_ranks");
}

// A tensor, or a part of it from `begin` on, in runs of `each` elements: rank r adds up the r-th.
struct Runs {
  int64_t n, begin, each;

  int64_t first(int r) const { return begin + r * each; }
  int64_t count(int r) const { return std::clamp<int64_t>(n - first(r), 0, each); }
};

class ReduceRanks : public Collective {
 public:
  explicit ReduceRanks(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {
    is_scattered_ = p_.first < 0;
    has_levels_ = has_peers() && has_hosts();
    if (p_.ranks_a_host != (has_levels_ ? links().n_local : 0))
      throw ModuleError("[cuda] expected sums of " + std::to_string(links().n_local) +
                        " ranks a host, got a program for " + std::to_string(p_.ranks_a_host));
  }
  void move(const Launch& args) override {
    if (!is_scattered_) return has_hosts() ? add_in_runs(args) : add_of_peers(args);
    const Runs runs{p_.n, 0, p_.shard};
    if (!has_peers()) return bring_from_hosts(args, runs, scratch(args));
    bring_from_peers(args, runs, scratch(args));
    if (!has_levels_) return;
    for (int host = 0; host < links().n_hosts(); ++host) {
      Summands parts = parts_of(links().n_local, links().local(), x_of(args, runs, like(host)));
      parts.others = scratch(args) + bytes_of_x(host * runs.each);
      parts.stride = bytes_of_x(links().n_hosts() * runs.each);
      add_of_host(args, runs, host, parts, sums_of_hosts(args));
    }
    exchange_sums(args, runs, sums_of_hosts(args), scratch(args));
  }
  // Scattered: of what was brought.
  void finish(const Launch& args) override {
    const Runs runs{p_.n, 0, p_.shard};
    if (has_levels_) return add_sums(args, runs, sums_of_hosts(args), scratch(args));
    add_brought(args, runs, scratch(args));
  }

 private:
  std::byte* scratch(const Launch& args) const { return static_cast<std::byte*>(args.scratch); }
  int64_t bytes_of_x(int64_t n) const { return n * dtype_bytes(p_.x); }
  const std::byte* x_of(const Launch& args, const Runs& runs, int rank) const {
    return args.in<std::byte>(Reduce::x) + bytes_of_x(runs.first(rank));
  }
  int like(int host) const { return host * links().n_local + links().local(); }
  // Slot of what others have, in their order.
  static int slot(int index, int own) { return index - (index > own ? 1 : 0); }
  static Summands parts_of(int n, int own_index, const std::byte* own) {
    return {.n = n, .own_index = own_index, .own = own};
  }

  // Brings what the peers have of this rank's run, and of those of its like on other hosts.
  void bring_from_peers(const Launch& args, const Runs& runs, std::byte* to) const {
    for_peers([&](int local) {
      for (int host = 0; host < links().n_hosts(); ++host) {
        const int64_t turn = slot(local, links().local()) * links().n_hosts() + host;
        within().bring(local, x_of(args, runs, like(host)), to + bytes_of_x(turn * runs.each),
                       bytes_of_x(runs.count(like(host))), args.stream);
      }
    });
  }
  // All other ranks', where each counts as a host.
  void bring_from_hosts(const Launch& args, const Runs& runs, std::byte* to) const {
    const int own = links().rank;
    exchange(args, [&](int rank) {
      return Exchange{.give = x_of(args, runs, rank),
                      .give_bytes = bytes_of_x(runs.count(rank)),
                      .take = to + bytes_of_x(slot(rank, own) * runs.each),
                      .take_bytes = bytes_of_x(runs.count(own))};
    });
  }
  // This rank's run of the result, of what all ranks have of it.
  void add_brought(const Launch& args, const Runs& runs, const std::byte* brought) const {
    Summands parts = parts_of(links().n_ranks, links().rank, x_of(args, runs, links().rank));
    parts.others = brought;
    parts.stride = bytes_of_x(runs.each);
    launch_sum(result(args, runs, p_.x, parts), args);
  }

  // The host's sum of the run of this rank's like on another, or its own.
  void add_of_host(const Launch& args, const Runs& runs, int host, const Summands& parts,
                   float* sums) const {
    const int64_t count = runs.count(like(host));
    launch_sum({.x = p_.x,
                .y = Dtype::f32,
                .parts = parts,
                .scale = scale(args),
                .to = sums + host * runs.each,
                .size = {count, count}},
               args);
  }
  void exchange_sums(const Launch& args, const Runs& runs, const float* sums, std::byte* to) const {
    constexpr int64_t kWidth = sizeof(float);
    exchange(args, [&](int host) {
      return Exchange{.give = reinterpret_cast<const std::byte*>(sums + host * runs.each),
                      .give_bytes = runs.count(like(host)) * kWidth,
                      .take = to + slot(host, links().host()) * runs.each * kWidth,
                      .take_bytes = runs.count(links().rank) * kWidth};
    });
  }
  // This rank's run of the result, of the hosts' sums.
  void add_sums(const Launch& args, const Runs& runs, const float* sums,
                const std::byte* brought) const {
    const auto* const own = reinterpret_cast<const std::byte*>(sums + links().host() * runs.each);
    Summands parts = parts_of(links().n_hosts(), links().host(), own);
    parts.others = brought;
    parts.stride = runs.each * static_cast<int64_t>(sizeof(float));
    launch_sum(result(args, runs, Dtype::f32, parts), args);
  }
  // Behind what peers and then other hosts bring; in the scratch memory of bind/ranks.cpp.
  float* sums_of_hosts(const Launch& args) const {
    const int64_t hosts = links().n_hosts(), of_peers = (links().n_local - 1) * hosts;
    const int64_t brought = std::max(bytes_of_x(of_peers * p_.shard), (hosts - 1) * p_.shard * 4);
    return reinterpret_cast<float*>(scratch(args) + brought);
  }

  // A sum for all, of peers alone: each adds up everything.
  void add_of_peers(const Launch& args) const {
    Summands parts = parts_of(links().n_local, links().local(), nullptr);
    std::ranges::copy(links().peers<const std::byte>(args.operands[Reduce::x]), parts.at);
    launch_sum(result(args, {p_.n, 0, 0}, p_.x, parts), args);
  }
  // A sum for all: each rank adds up a run of each piece of the tensor, and gives it to the others.
  void add_in_runs(const Launch& args) const {
    const std::span<std::byte> staging = between().staging();
    const int64_t hosts = links().n_hosts();
    const int64_t each = has_levels_ ? (2 * hosts - 1) * 4 : bytes_of_x(hosts - 1);
    const int64_t most = std::ssize(staging) / each / 256 * 256;
    if (most == 0) throw ModuleError("[cuda] sums for all ranks: too many ranks");
    Runs runs{p_.n, 0, std::min(most, p_.shard)};
    auto* const sums = reinterpret_cast<float*>(staging.data());
    for (; runs.begin < p_.n; runs.begin += p_.ranks * runs.each) {
      if (has_levels_) {
        auto* const brought = reinterpret_cast<std::byte*>(sums + hosts * runs.each);
        for (int host = 0; host < hosts; ++host) {
          Summands parts = parts_of(links().n_local, links().local(), nullptr);
          const std::byte* const own = x_of(args, runs, like(host));
          if (runs.count(like(host)) > 0)
            std::ranges::copy(links().peers<const std::byte>(own), parts.at);
          add_of_host(args, runs, host, parts, sums);
        }
        exchange_sums(args, runs, sums, brought);
        add_sums(args, runs, sums, brought);
      } else {
        bring_from_hosts(args, runs, staging.data());
        add_brought(args, runs, staging.data());
      }
      give_results(args, runs);
    }
  }
  // Each rank's run of the result to all: between the hosts, and then within.
  void give_results(const Launch& args, const Runs& runs) const {
    const auto at = [&](int rank) {
      return args.out<std::byte>(0) + runs.first(rank) * dtype_bytes(p_.y);
    };
    const auto n_bytes = [&](int rank) { return runs.count(rank) * dtype_bytes(p_.y); };
    exchange(args, [&](int host) {
      return Exchange{.give = at(links().rank),
                      .give_bytes = n_bytes(links().rank),
                      .take = at(like(host)),
                      .take_bytes = n_bytes(like(host))};
    });
    if (!has_levels_) return;
    within().barrier(args.stream);
    for_peers([&](int local) {
      for (int host = 0; host < links().n_hosts(); ++host) {
        const int rank = host * links().n_local + local;
        within().bring(local, at(rank), at(rank), n_bytes(rank), args.stream);
      }
    });
  }

  const float* scale(const Launch& args) const {
    return is_quantized(p_.x) ? args.in<float>(Reduce::scale) : nullptr;
  }
  // This rank's run of y. A sum for all lies in its place of y and into.
  Sum result(const Launch& args, const Runs& runs, Dtype x, const Summands& parts) const {
    const int own = links().rank;
    const int64_t first = is_scattered_ ? 0 : runs.first(own) * dtype_bytes(p_.y);
    const auto* const into = p_.into ? args.in<std::byte>(Reduce::into) + first : nullptr;
    const bool is_whole = runs.each == 0;
    const int64_t there = is_whole ? p_.n : runs.count(own);
    return {.x = x,
            .y = p_.y,
            .parts = parts,
            .scale = is_quantized(x) ? scale(args) : nullptr,
            .into = into,
            .squares = p_.squares ? args.out<int64_t>(Reduce::squares) : nullptr,
            .to = args.out<std::byte>(0) + first,
            .size = {is_scattered_ ? p_.count : there, there}};
  }

  RankParams p_;
  bool is_scattered_ = false;
  bool has_levels_ = false;  // of sums within hosts, and of these
};

}  // namespace

std::unique_ptr<Prepared> make_reduce_ranks(const Request& request) {
  return std::make_unique<ReduceRanks>(request);
}

}  // namespace octet::cuda
