// dot of any axes: params/reduce.h.
#include "backends/cuda/kernels/reduce/reduce.cuh"

namespace octet::cuda {
namespace {

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

}  // namespace

std::unique_ptr<Prepared> prepare_dot(const Request& request) {
  return stateless<DotParams, run_dot>(request);
}

}  // namespace octet::cuda
