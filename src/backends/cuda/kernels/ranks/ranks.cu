// Between the GPUs of all ranks. Contract: params/ranks.h.
#include <algorithm>

#include "backends/cuda/kernels/ranks/squares.cuh"
#include "backends/cuda/kernels/ranks/transport.h"
#include "backends/cuda/launch/context.h"
#include "backends/cuda/launch/join.h"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = kSquareThreads;

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

// What sums are taken in: f32, bf16 and fp16 as they are, E4M3 times the tensor's scale.
template <typename F>
void visit_summand(Dtype dtype, F&& f) {
  if (dtype == Dtype::e4m3) return f.template operator()<Dtype::e4m3>();
  visit_wide(dtype, f);
}

// xs: where each rank's part of the result begins; scale: of E4M3; squares: a row a block, of the
// result as it is stored.
template <Dtype X, Dtype Y, bool kSquares>
__global__ void __launch_bounds__(kThreads)
    sum_of_ranks(Peers<const Storage<X>> xs, const float* scale, const Storage<Y>* into,
                 int64_t* squares, Storage<Y>* y, RankParams p) {
  const float factor = kIsQuantized<X> ? *scale : 1.0f;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * 8;
  const int64_t there = min(p.count, p.n - p.first);
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 8;
  [[maybe_unused]] Limb limb = 0;
  for (; i < p.count; i += stride) {
    float sum[8] = {};
    if (into != nullptr) {
      const auto values = Eight<Y>::load(into, i, p.count);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] = to_float<Y>(values.at[j]);
    }
#pragma unroll
    for (int r = 0; r < static_cast<int>(kMostRanks); ++r) {
      if (r >= p.ranks) break;
      const auto values = Eight<X>::load(xs.at[r], i, there);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float plain = to_float<X>(values.at[j]);
        const float value = kIsQuantized<X> ? __fmul_rn(plain, factor) : plain;
        sum[j] = r == 0 && into == nullptr ? value : sum[j] + value;
      }
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

// What copy engines are slow at: within one GPU.
__global__ void __launch_bounds__(kThreads)
    copy_run(const std::byte* from, std::byte* to, int64_t n_bytes) {
  constexpr int kUnroll = 4;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t n = n_bytes / 16,
                thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
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

unsigned grid_of(int n_sm, int64_t n_elems, int each) {
  const int64_t blocks = (n_elems + int64_t{kThreads} * each - 1) / (int64_t{kThreads} * each);
  return static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, int64_t{n_sm} * 8));
}

void copy_here(const std::byte* from, std::byte* to, int64_t n_bytes, const Launch& args) {
  if (n_bytes == 0) return;
  copy_run<<<grid_of(args.n_sm, n_bytes, 64), kThreads, 0, args.stream>>>(from, to, n_bytes);
  check_launch("copying a shard");
}

struct MaxPart {
  Peers<const float> xs;
  float* y;
  int64_t count;
};

// A block a part: y, and those of launches that are joined to it. NaN is larger than any number.
__global__ void max_of_floats(Peers<const float> xs, float* y, RankParams p, Parts<MaxPart> more) {
  const bool is_own = blockIdx.x == 0;
  const MaxPart part = is_own ? MaxPart{xs, y, p.count} : more.of[blockIdx.x - 1];
  for (int64_t i = threadIdx.x; i < part.count; i += kThreads) {
    float top = part.xs.at[0][i];
    for (int r = 1; r < p.ranks; ++r) {
      const float x = part.xs.at[r][i];
      top = isnan(x) || x > top ? x : top;
    }
    part.y[i] = top;
  }
}
__global__ void max_of_flags(Peers<const uint8_t> xs, uint8_t* y, RankParams p) {
  for (int64_t i = threadIdx.x; i < p.count; i += kThreads) {
    uint8_t any = 0;
    for (int r = 0; r < p.ranks; ++r) any |= xs.at[r][i];
    y[i] = any;
  }
}

struct NormPlaces {
  const float* clip;
  float *norm, *grad_scale;
  uint8_t* found;
};

__global__ void norm_of_sums(Peers<const int64_t> sums, NormPlaces to) {
  int64_t limbs[kLimbs + 1] = {};
  for (int r = 0; r < kMostRanks && sums.at[r] != nullptr; ++r) {
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
  Collective(const Request& request, int64_t ranks) : links_(request.context.links) {
    is_alone_ = ranks == 1;
    if (!is_alone_ && ranks != links_.n_ranks)
      throw ModuleError("[cuda] expected a program for " + std::to_string(links_.n_ranks) +
                        " ranks, got one for " + std::to_string(ranks));
  }
  void launch(const Launch& args) override {
    if (args.is_finish) return finish(args);
    begin(args);
    move(args);
    end(args);
  }

 protected:
  void begin(const Launch& args) const {
    if (args.begins_run > 0 && links_.n_ranks > 1) transport().begin(args.begins_run, args.stream);
  }
  void end(const Launch& args) const {
    if (args.ends_run && links_.n_ranks > 1) transport().end(args.stream);
  }
  virtual void move(const Launch& args) = 0;
  virtual void finish(const Launch&) {}
  const RankLinks& links() const { return links_; }
  Transport& transport() const { return *links_.transport; }
  bool is_alone() const { return is_alone_; }  // every rank computes the whole by itself

  // With each other rank, the next one first: what part(r) says.
  template <typename Part>
  void exchange(const Launch& args, const Part& part) const {
    std::array<Exchange, kMostRanks> parts;
    const int n = links_.n_ranks;
    for (int step = 1; step < n; ++step) parts[step] = part((links_.rank + step) % n, step - 1);
    transport().exchange(std::span(parts).subspan(1, n - 1), args.stream);
  }

 private:
  const RankLinks& links_;
  bool is_alone_ = false;
};

class AllGather : public Collective {
 public:
  explicit AllGather(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {
    const bool is_even = p_.n == p_.shard * p_.ranks;
    is_whole_ = is_even && !transport().reaches_memory();
  }
  // The other ranks' parts, and at last its own.
  void move(const Launch& args) override {
    const auto* const own = args.in<std::byte>(0);
    const Part mine = part_of(links().rank, args);
    if (is_whole_)
      return transport().all_gather(own, args.out<std::byte>(0), mine.n_bytes, args.stream);
    exchange(args, [&](int r, int) {
      const Part theirs = part_of(r, args);
      return Exchange{.rank = r,
                      .give = own,
                      .give_bytes = mine.n_bytes,
                      .take = theirs.to,
                      .take_bytes = theirs.n_bytes,
                      .given = p_.in_place ? theirs.to : own};
    });
  }
  // Not where it lies in place.
  void finish(const Launch& args) override {
    const Part part = part_of(links().rank, args);
    if (!is_whole_) copy_here(args.in<std::byte>(0), part.to, part.n_bytes, args);
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

class ReduceRanks : public Collective {
 public:
  explicit ReduceRanks(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {
    is_scattered_ = p_.first < 0;
  }
  void move(const Launch& args) override {
    const auto* const x = args.in<std::byte>(Reduce::x);
    auto* const scratch = static_cast<std::byte*>(args.scratch);
    if (is_scattered_) return bring(args, x, 0, p_.shard, scratch);
    if (!transport().reaches_memory()) return add_in_pieces(args);
    add(p_, args, [&]<typename T>() { return peers_of<T>(links(), x); });
  }
  // Scattered: of what was brought.
  void finish(const Launch& args) override {
    add_piece(args, 0, p_.shard, static_cast<std::byte*>(args.scratch), p_.count);
  }

 private:
  // How many elements there are of as many as `most` from `first` on.
  int64_t there(int64_t first, int64_t most) const {
    return std::clamp<int64_t>(p_.n - first, 0, most);
  }
  // Of elements [begin + r * piece, begin + (r + 1) * piece) rank r is given what all others have,
  // in their turn behind this one, `piece` elements apart.
  void bring(const Launch& args, const std::byte* x, int64_t begin, int64_t piece,
             std::byte* to) const {
    const int64_t width = dtype_bytes(p_.x), own = begin + links().rank * piece;
    exchange(args, [&](int r, int turn) {
      const int64_t theirs = begin + r * piece;
      return Exchange{.rank = r,
                      .give = x + theirs * width,
                      .give_bytes = there(theirs, piece) * width,
                      .take = to + turn * piece * width,
                      .take_bytes = there(own, piece) * width,
                      .given = x + own * width};
    });
  }
  // y[own piece], `count` elements, of what bring() brought.
  void add_piece(const Launch& args, int64_t begin, int64_t piece, const std::byte* brought,
                 int64_t count) const {
    RankParams p = p_;
    p.first = begin + links().rank * piece;
    p.count = count;
    add(p, args, [&]<typename T>() {
      Peers<T> xs{};
      const int n = links().n_ranks;
      for (int step = 1; step < n; ++step)
        xs.at[(links().rank + step) % n] = reinterpret_cast<T*>(brought) + (step - 1) * piece;
      xs.at[links().rank] = args.in<T>(Reduce::x) + p.first;
      return xs;
    });
  }
  // A sum for all: each rank adds a part of each piece, and gives it to the others.
  void add_in_pieces(const Launch& args) const {
    const std::span<std::byte> staging = transport().staging();
    const int64_t ranks = links().n_ranks, width = dtype_bytes(p_.y);
    const int64_t most = std::ssize(staging) / ((ranks - 1) * dtype_bytes(p_.x));
    const int64_t piece = std::min(most / 256 * 256, p_.shard);
    auto* const y = args.out<std::byte>(0);
    for (int64_t begin = 0; begin < p_.n; begin += ranks * piece) {
      const int64_t own = begin + links().rank * piece;
      bring(args, args.in<std::byte>(Reduce::x), begin, piece, staging.data());
      add_piece(args, begin, piece, staging.data(), there(own, piece));
      exchange(args, [&](int r, int) {
        const int64_t theirs = begin + r * piece;
        return Exchange{.rank = r,
                        .give = y + own * width,
                        .give_bytes = there(own, piece) * width,
                        .take = y + theirs * width,
                        .take_bytes = there(theirs, piece) * width};
      });
    }
  }

  // xs: where each rank's part of the result begins. A sum for all lies in its place of y and into.
  template <typename Parts>
  void add(const RankParams& p, const Launch& args, const Parts& xs) const {
    if (p.count == 0 && !p.squares) return;
    visit_summand(p.x, [&]<Dtype X>() {
      visit_wide(p.y, [&]<Dtype Y>() {
        p.squares ? launch_sum<X, Y, true>(p, args, xs) : launch_sum<X, Y, false>(p, args, xs);
      });
    });
    check_launch("reduce_ranks");
  }
  template <Dtype X, Dtype Y, bool kSquares, typename Parts>
  void launch_sum(const RankParams& p, const Launch& args, const Parts& xs) const {
    const int64_t at = is_scattered_ ? 0 : p.first;
    const auto* const scale = is_quantized(p.x) ? args.in<float>(Reduce::scale) : nullptr;
    const auto* const into = p.into ? args.in<Storage<Y>>(Reduce::into) + at : nullptr;
    const unsigned grid =
        kSquares ? static_cast<unsigned>(square_parts(p.count)) : grid_of(args.n_sm, p.count, 8);
    auto* const squares = kSquares ? args.out<int64_t>(Reduce::squares) : nullptr;
    sum_of_ranks<X, Y, kSquares>
        <<<grid, kThreads, 0, args.stream>>>(xs.template operator()<const Storage<X>>(), scale,
                                             into, squares, args.out<Storage<Y>>(0) + at, p);
  }

  RankParams p_;
  bool is_scattered_ = false;
};

class MaxOfRanks : public Collective {
 public:
  explicit MaxOfRanks(const Request& request)
      : Collective(request, request.get<RankParams>().ranks), p_(request.get<RankParams>()) {}
  void move(const Launch& args) override {
    if (!transport().reaches_memory())
      return transport().max_of(args.operands[0], args.results[0], p_.count,
                                is_flag() ? nccl::uint8 : nccl::uint32, args.stream);
    if (is_flag()) {
      max_of_flags<<<1, kThreads, 0, args.stream>>>(
          peers_of<const uint8_t>(links(), args.operands[0]), args.out<uint8_t>(0), p_);
      return check_launch("max_of_ranks");
    }
    compare(args, {});
  }
  void launch_joined(std::span<const Joined> all) override {
    const auto more = join_parts<MaxPart>(*this, all.subspan(1));
    if (!more) return Prepared::launch_joined(all);
    begin(all.front().args);
    compare(all.front().args, *more);
    end(all.back().args);
  }
  bool goes_with(const MaxOfRanks&) const { return !is_flag() && transport().reaches_memory(); }
  void add_to(Parts<MaxPart>& parts, const Launch& args) const {
    parts.add({.xs = peers_of<const float>(links(), args.operands[0]),
               .y = args.out<float>(0),
               .count = p_.count},
              1);
  }

 private:
  bool is_flag() const { return p_.x == Dtype::boolean; }
  void compare(const Launch& args, const Parts<MaxPart>& more) const {
    max_of_floats<<<1 + more.n_blocks(), kThreads, 0, args.stream>>>(
        peers_of<const float>(links(), args.operands[0]), args.out<float>(0), p_, more);
    check_launch("max_of_ranks");
  }
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
      if (some.count == 0 || !(is_last || some.count == Gradients::kMost)) continue;
      const unsigned blocks = grid_of(args.n_sm, some.end[some.count - 1] * 256, 32);
      if (is_summed) {
        sum_of_rows<<<blocks, kThreads, 0, args.stream>>>(some, sum);
      } else {
        visit_wide(dtype, [&]<Dtype G>() {
          square_sums<G><<<blocks, kThreads, 0, args.stream>>>(some, sum);
        });
      }
      some.count = 0;
    }
    check_launch("sharded_norm");
  }
  void add_sums(const Launch& args) const {
    using S = octet::GlobalNorm;
    Peers<const int64_t> sums{};
    sums.at[0] = sum_of(args);
    if (!is_alone()) std::ranges::copy(transport().share_sums(args.stream), sums.at);
    norm_of_sums<<<1, 1, 0, args.stream>>>(
        sums, {args.in<float>(S::clip), args.out<float>(S::norm), args.out<float>(S::grad_scale),
               args.out<uint8_t>(S::found_nonfinite)});
    check_launch("sharded_norm");
  }

  int64_t* sum_of(const Launch& args) const {
    return is_alone() ? static_cast<int64_t*>(args.scratch) : links().board()->sum;
  }
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
