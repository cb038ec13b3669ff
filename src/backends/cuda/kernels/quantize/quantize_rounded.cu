// Codes of a tensor by its one scale, of formats that GEMMs do not read, or rounded otherwise than
// to the format's nearest: params/quantize.h.
#include <algorithm>

#include "backends/cuda/kernels/quantize/quantize_source.cuh"

namespace octet::cuda {
namespace {

// A block turns a tile of 64 rows and 32 columns; a column's rows lie in shared memory as words.
constexpr int kRows = 64, kCols = 32, kWarps = kThreads / 32;
constexpr int kWords = kRows / 4 + 1;  // one more, so that columns do not meet in a bank

struct RoundedTask {
  const void* x;
  const float* scale;
  uint8_t* by_row;      // nullptr: not wanted
  uint8_t* transposed;  // nullptr: not wanted
  QuantizeParams p;
  int64_t tiles_across;
  bool aligned_transposed = false;
};

__device__ __forceinline__ void store_transposed(const RoundedTask& t, int64_t col, int64_t row,
                                                 uint32_t word) {
  if (col >= t.p.cols || row >= t.p.padded_rows) return;
  uint8_t* to = t.transposed + col * t.p.padded_rows + row;
  if (t.aligned_transposed) {
    *reinterpret_cast<uint32_t*>(to) = word;
    return;
  }
  for (int j = 0; j < 4 && row + j < t.p.padded_rows; ++j)
    to[j] = static_cast<uint8_t>(word >> (8 * j));
}

template <Dtype C>
__global__ void __launch_bounds__(kThreads)
    quantize_rounded(const __grid_constant__ RoundedTask t) {
  __shared__ uint32_t tile[kCols * kWords];
  auto* bytes = reinterpret_cast<uint8_t*>(tile);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first_row = blockIdx.x / t.tiles_across * kRows;
  const int64_t first_col = blockIdx.x % t.tiles_across * kCols;
  const int64_t col = first_col + lane;
  const float inv_scale = 1.0f / *t.scale;
  const EncodeOptions options{.source = t.p.source};
  for (int r = warp; r < kRows; r += kWarps) {
    const int64_t row = first_row + r;
    uint8_t code = static_cast<uint8_t>(kFormatRow<C>.zero_code);
    if (row < t.p.rows && col < t.p.cols) {
      const float x = load_float(t.x, row * t.p.cols + col, t.p.x);
      const float scaled = limited(x * inv_scale, t.p.limit);
      code = static_cast<uint8_t>(encode<C>(scaled, t.p.rounding, options));
      if (t.by_row != nullptr) t.by_row[row * t.p.cols + col] = code;
    }
    bytes[lane * kWords * 4 + r] = code;
  }
  if (t.transposed == nullptr) return;
  __syncthreads();
  constexpr int kColumnWords = kRows / 4;
  for (int i = threadIdx.x; i < kCols * kColumnWords; i += kThreads) {
    const int c = i / kColumnWords, w = i % kColumnWords;
    store_transposed(t, first_col + c, first_row + w * 4, tile[c * kWords + w]);
  }
}

}  // namespace

void launch_rounded(const QuantizeParams& p, const QuantizeCall& call) {
  RoundedTask t{.x = call.x,
                .scale = call.scale.given,
                .by_row = call.by_row,
                .transposed = call.transposed,
                .p = p,
                .tiles_across = ceil_div(p.cols, kCols)};
  t.aligned_transposed = is_aligned(t.transposed, 4) && p.padded_rows % 4 == 0;
  const int64_t rows = std::max(p.rows, p.transposed ? p.padded_rows : 0);
  const unsigned grid = grid_of(t.tiles_across * ceil_div(rows, kRows));
  visit_format(p.codes,
               [&]<Dtype C>() { quantize_rounded<C><<<grid, kThreads, 0, call.stream>>>(t); });
  check_launch("quantize, rounded");
}

}  // namespace octet::cuda
