// Sums, maxima and their places: params/reduce.h.
#include "backends/cuda/kernels/reduce/reduce.cuh"

namespace octet::cuda {
namespace {

enum class Kind : int { sum, max, argmax };

struct Found {
  double value;
  int64_t at;
};
constexpr int64_t kNowhere = int64_t{1} << 62;

template <Kind K>
__device__ __forceinline__ Found nothing() {
  if constexpr (K == Kind::sum) return {0.0, 0};
  return {-__longlong_as_double(0x7FF0000000000000ll), kNowhere};
}

// A NaN is above everything, and nothing is above it.
__device__ __forceinline__ bool above(double b, double a) {
  return a == a && (b != b || b > a);
}

template <Kind K>
__device__ __forceinline__ void join(Found& a, const Found& b) {
  if constexpr (K == Kind::sum) {
    a.value += b.value;
  } else {
    if (above(b.value, a.value) || (!above(a.value, b.value) && b.at < a.at)) a = b;
  }
}

struct ReduceTask {
  const void* x;
  void* y;
  Found* parts;  // [pieces, n_kept]; nullptr: results are stored at once
  ReduceParams p;
  int64_t pieces, piece;  // how many, and elements of one
};

template <Kind K>
__device__ __forceinline__ void store_found(const ReduceTask& t, int64_t kept, const Found& found) {
  if constexpr (K == Kind::argmax) {
    static_cast<int32_t*>(t.y)[kept] = found.at == kNowhere ? 0 : static_cast<int32_t>(found.at);
  } else {
    store_double(t.y, kept, t.p.y, found.value);
  }
}
template <Kind K>
__device__ __forceinline__ void leave(const ReduceTask& t, int64_t kept, int64_t piece,
                                      const Found& found) {
  if (t.parts == nullptr) return store_found<K>(t, kept, found);
  t.parts[piece * t.p.n_kept + kept] = found;
}

template <Kind K>
__device__ __forceinline__ void join_warp(Found& found) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const Found other{__shfl_xor_sync(~0u, found.value, step),
                      __shfl_xor_sync(~0u, found.at, step)};
    join<K>(found, other);
  }
}

// A warp has a piece of one result: where what vanishes lies together.
template <Kind K>
__global__ void __launch_bounds__(kThreads) reduce_across(const __grid_constant__ ReduceTask t) {
  const int64_t at = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (at >= t.p.n_kept * t.pieces) return;
  const int64_t kept = at % t.p.n_kept, piece = at / t.p.n_kept;
  const int64_t base = offset_of(t.p.kept, kept), end = min(t.p.n_gone, (piece + 1) * t.piece);
  Found found = nothing<K>();
  for (int64_t i = piece * t.piece + threadIdx.x % 32; i < end; i += 32)
    join<K>(found, {load_float(t.x, base + offset_of(t.p.gone, i), t.p.x), i});
  join_warp<K>(found);
  if (threadIdx.x % 32 == 0) leave<K>(t, kept, piece, found);
}

// A thread has one: where results lie together.
template <Kind K>
__global__ void __launch_bounds__(kThreads) reduce_along(const __grid_constant__ ReduceTask t) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= t.p.n_kept * t.pieces) return;
  const int64_t kept = at % t.p.n_kept, piece = at / t.p.n_kept;
  const int64_t base = offset_of(t.p.kept, kept), end = min(t.p.n_gone, (piece + 1) * t.piece);
  Found found = nothing<K>();
  for (int64_t i = piece * t.piece; i < end; ++i)
    join<K>(found, {load_float(t.x, base + offset_of(t.p.gone, i), t.p.x), i});
  leave<K>(t, kept, piece, found);
}

// A thread adds the pieces of one sum up, in their order; a warp finds the largest of them.
template <Kind K>
__global__ void __launch_bounds__(kThreads) join_pieces(const __grid_constant__ ReduceTask t) {
  constexpr int kWide = K == Kind::sum ? 1 : 32;
  const int64_t kept = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWide;
  if (kept >= t.p.n_kept) return;
  Found found = nothing<K>();
  for (int64_t piece = threadIdx.x % kWide; piece < t.pieces; piece += kWide)
    join<K>(found, t.parts[piece * t.p.n_kept + kept]);
  if constexpr (kWide > 1) join_warp<K>(found);
  if (threadIdx.x % kWide == 0) store_found<K>(t, kept, found);
}

template <Kind K>
void run_reduce(const ReduceParams& p, const Launch& args) {
  if (p.n_kept == 0) return;
  const int64_t pieces = reduce_pieces(p);
  const ReduceTask t{.x = args.operands[0],
                     .y = args.results[0],
                     .parts = pieces == 1 ? nullptr : static_cast<Found*>(args.scratch),
                     .p = p,
                     .pieces = pieces,
                     .piece = ceil_div(p.n_gone, pieces)};
  const bool together = p.gone.rank == 0 || p.kept.rank == 0 || p.gone.stride[p.gone.rank - 1] == 1;
  if (together) {
    const unsigned grid = grid_of(ceil_div(p.n_kept * pieces, kThreads / 32));
    reduce_across<K><<<grid, kThreads, 0, args.stream>>>(t);
  } else {
    const unsigned grid = grid_of(ceil_div(p.n_kept * pieces, kThreads));
    reduce_along<K><<<grid, kThreads, 0, args.stream>>>(t);
  }
  if (pieces > 1) {
    const int64_t threads = p.n_kept * (K == Kind::sum ? 1 : 32);
    join_pieces<K><<<grid_of(ceil_div(threads, kThreads)), kThreads, 0, args.stream>>>(t);
  }
  check_launch("reduce");
}

constexpr KernelEntry kRows[] = {
    {KernelId::reduce_sum, stateless<ReduceParams, run_reduce<Kind::sum>>},
    {KernelId::reduce_max, stateless<ReduceParams, run_reduce<Kind::max>>},
    {KernelId::argmax, stateless<ReduceParams, run_reduce<Kind::argmax>>},
    {KernelId::dot, prepare_dot},
};

}  // namespace

std::span<const KernelEntry> reduce_kernels() {
  return kRows;
}

}  // namespace octet::cuda
