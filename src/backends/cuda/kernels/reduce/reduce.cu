// Sums, maxima and their places, and dot of any axes: params/reduce.h.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/params/reduce.h"

namespace octet::cuda {
namespace {

// Offset of element i of the axes.
__device__ __forceinline__ int64_t offset_of(const AxisList& axes, int64_t i) {
  int64_t at = 0;
  for (int k = static_cast<int>(axes.rank) - 1; k >= 0; --k) {
    const int64_t above = i / axes.extent[k];
    at += (i - above * axes.extent[k]) * axes.stride[k];
    i = above;
  }
  return at;
}

__device__ __forceinline__ void store_double(void* y, int64_t i, Dtype dtype, double v) {
  if (dtype == Dtype::f32) {
    static_cast<float*>(y)[i] = static_cast<float>(v);
  } else {
    static_cast<uint16_t*>(y)[i] = dtype == Dtype::bf16 ? __bfloat16_as_ushort(__double2bfloat16(v))
                                                        : __half_as_ushort(__double2half(v));
  }
}

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
  if (p.is_across) {
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

// A block has a tile of 16 x 16 results and goes along k in steps of 16.
constexpr int kTile = 16;

struct DotTask {
  const void* a;
  const void* b;
  void* y;
  DotParams p;
  int64_t tiles_m, tiles_n;
};

__global__ void __launch_bounds__(kTile* kTile) dot_tiles(const __grid_constant__ DotTask t) {
  __shared__ float a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];
  const DotParams& p = t.p;
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const int64_t tile_n = blockIdx.x % t.tiles_n, above = blockIdx.x / t.tiles_n;
  const int64_t tile_m = above % t.tiles_m, batch = above / t.tiles_m;
  const int64_t m = tile_m * kTile + y, n = tile_n * kTile + x, row_b = tile_n * kTile + y;
  const int64_t a_at = offset_of(p.a_batch, batch) + (m < p.m ? offset_of(p.a_free, m) : 0);
  const int64_t b_at = offset_of(p.b_batch, batch) + (row_b < p.n ? offset_of(p.b_free, row_b) : 0);
  double sum = 0;
  for (int64_t first = 0; first < p.k; first += kTile) {
    const int64_t k = first + x;
    const bool in_k = k < p.k;
    a_tile[y][x] = in_k && m < p.m ? load_float(t.a, a_at + offset_of(p.a_deep, k), p.a) : 0.0f;
    b_tile[y][x] = in_k && row_b < p.n ? load_float(t.b, b_at + offset_of(p.b_deep, k), p.b) : 0.0f;
    __syncthreads();
    const int64_t left = min(int64_t{kTile}, p.k - first);
    for (int j = 0; j < left; ++j)
      sum += static_cast<double>(a_tile[y][j]) * static_cast<double>(b_tile[x][j]);
    __syncthreads();
  }
  if (m < p.m && n < p.n) store_double(t.y, (batch * p.m + m) * p.n + n, p.y, sum);
}

void run_dot(const DotParams& p, const Launch& args) {
  if (p.batch * p.m * p.n == 0) return;
  const DotTask t{.a = args.operands[0],
                  .b = args.operands[1],
                  .y = args.results[0],
                  .p = p,
                  .tiles_m = ceil_div(p.m, kTile),
                  .tiles_n = ceil_div(p.n, kTile)};
  const unsigned grid = grid_of(p.batch * t.tiles_m * t.tiles_n);
  dot_tiles<<<grid, kTile * kTile, 0, args.stream>>>(t);
  check_launch("dot");
}

constexpr KernelEntry kRows[] = {
    {KernelId::reduce_sum, stateless<ReduceParams, run_reduce<Kind::sum>>},
    {KernelId::reduce_max, stateless<ReduceParams, run_reduce<Kind::max>>},
    {KernelId::argmax, stateless<ReduceParams, run_reduce<Kind::argmax>>},
    {KernelId::dot, stateless<DotParams, run_dot>},
};

}  // namespace

std::span<const KernelEntry> reduce_kernels() {
  return kRows;
}

}  // namespace octet::cuda
