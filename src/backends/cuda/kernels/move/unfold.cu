// Windows of pictures and their gradient, which gathers: params/pictures.h.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/move/move.cuh"

namespace octet::cuda {
namespace {

// Elements of 16, 8, 4, 2 or 1 bytes: several channels of a pixel.
template <int kBytes>
struct Piece;
template <>
struct Piece<16> {
  using Type = uint4;
};
template <>
struct Piece<8> {
  using Type = uint2;
};
template <>
struct Piece<4> {
  using Type = uint32_t;
};
template <>
struct Piece<2> {
  using Type = uint16_t;
};
template <>
struct Piece<1> {
  using Type = uint8_t;
};

struct UnfoldTask {
  const void* x;
  void* y;
  UnfoldParams p;
  int n_pieces;       // of a pixel
  unsigned n_of_row;  // pieces of a row of windows
};

// The place in [0, extent) that place i of window w reads, or -1.
__device__ __forceinline__ int place_in(const WindowAxis& a, int w, int i) {
  const int at = w * a.stride + i * a.dilation - a.low;
  return at < a.picture ? max(at, -1) : -1;
}

// Block row y: a row of windows of a picture; its threads write it piece by piece.
template <typename T>
__global__ void __launch_bounds__(kThreads) unfold_rows(const __grid_constant__ UnfoldTask t) {
  const UnfoldParams& p = t.p;
  const unsigned piece = blockIdx.x * kThreads + threadIdx.x;
  if (piece >= t.n_of_row) return;
  const unsigned n_pieces = static_cast<unsigned>(t.n_pieces);
  const unsigned above = piece / n_pieces, c = piece - above * n_pieces;
  const unsigned place = above / static_cast<unsigned>(p.columns.window);
  const unsigned j = above - place * static_cast<unsigned>(p.columns.window);
  const unsigned q = place / static_cast<unsigned>(p.rows.window);
  const unsigned i = place - q * static_cast<unsigned>(p.rows.window);
  const int s = place_in(p.columns, static_cast<int>(q), static_cast<int>(j));
  for (int64_t row = blockIdx.y; row < p.n_pictures * p.rows.n_windows; row += gridDim.y) {
    const int64_t picture = row / p.rows.n_windows;
    const int r =
        place_in(p.rows, static_cast<int>(row - picture * p.rows.n_windows), static_cast<int>(i));
    T value{};
    if (r >= 0 && s >= 0) {
      const int64_t pixel = (picture * p.rows.picture + r) * p.columns.picture + s;
      value = static_cast<const T*>(t.x)[pixel * t.n_pieces + c];
    }
    static_cast<T*>(t.y)[row * t.n_of_row + piece] = value;
  }
}

template <int kBytes>
void launch_unfold(UnfoldTask t, const Launch& args) {
  const UnfoldParams& p = t.p;
  t.n_pieces = static_cast<int>(p.channels * p.bytes / kBytes);
  const int64_t n_of_row =
      int64_t{p.columns.n_windows} * p.rows.window * p.columns.window * t.n_pieces;
  if (n_of_row >= int64_t{1} << 31) throw ModuleError("[unfold] expected shorter rows of windows");
  t.n_of_row = static_cast<unsigned>(n_of_row);
  const int64_t n_rows = p.n_pictures * p.rows.n_windows;
  const dim3 grid(grid_of(ceil_div(n_of_row, kThreads)),
                  static_cast<unsigned>(n_rows < 65535 ? n_rows : 65535));
  unfold_rows<typename Piece<kBytes>::Type><<<grid, kThreads, 0, args.stream>>>(t);
  check_launch("unfold");
}

struct FoldTask {
  const void* y;
  void* x;
  UnfoldParams p;
};

// Calls fn(place, window) for each window along an axis that has a pixel, by place.
template <typename Fn>
__device__ __forceinline__ void each_holder(const WindowAxis& a, int pixel, Fn fn) {
  for (int i = 0; i < a.window; ++i) {
    const int at = pixel + a.low - i * a.dilation, w = at / a.stride;
    if (at >= 0 && w * a.stride == at && w < a.n_windows) fn(i, w);
  }
}

// A thread has kWidth channels of a pixel: eight, or one.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) fold_pixels(const __grid_constant__ FoldTask t) {
  const UnfoldParams& p = t.p;
  const int64_t n_parts = p.channels / kWidth;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.n_pictures * p.rows.picture * p.columns.picture * n_parts) return;
  const int64_t pixel = at / n_parts, c = (at - pixel * n_parts) * kWidth;
  const int64_t line = pixel / p.columns.picture, picture = line / p.rows.picture;
  const int s = static_cast<int>(pixel - line * p.columns.picture);
  const int r = static_cast<int>(line - picture * p.rows.picture);
  float sum[kWidth] = {};
  each_holder(p.rows, r, [&](int i, int row) {
    each_holder(p.columns, s, [&](int j, int column) {
      const int64_t window = (picture * p.rows.n_windows + row) * p.columns.n_windows + column;
      const int64_t place = (window * p.rows.window + i) * p.columns.window + j;
      const int64_t from = place * p.channels + c;
      if constexpr (kWidth == 1) {
        sum[0] += load_float(t.y, from, p.y);
      } else {
        float v[kEight];
        widen8(load_raw8(t.y, from, p.y), p.y, v);
#pragma unroll
        for (int k = 0; k < kEight; ++k) sum[k] += v[k];
      }
    });
  });
  if constexpr (kWidth == 1) {
    store_float(t.x, pixel * p.channels + c, p.x, sum[0]);
  } else {
    store_raw8(t.x, pixel * p.channels + c, p.x, narrow8(sum, p.x));
  }
}

}  // namespace

void run_unfold(const UnfoldParams& p, const Launch& args) {
  const int64_t n = p.n_pictures * p.rows.n_windows * p.columns.n_windows * p.channels;
  if (n == 0) return;
  const UnfoldTask t{.x = args.operands[0], .y = args.results[0], .p = p};
  const int64_t pixel_bytes = p.channels * p.bytes;
  const auto fits = [&](int bytes) {
    return pixel_bytes % bytes == 0 && is_aligned(t.x, bytes) && is_aligned(t.y, bytes);
  };
  if (fits(16)) return launch_unfold<16>(t, args);
  if (fits(8)) return launch_unfold<8>(t, args);
  if (fits(4)) return launch_unfold<4>(t, args);
  fits(2) ? launch_unfold<2>(t, args) : launch_unfold<1>(t, args);
}

void run_fold(const UnfoldParams& p, const Launch& args) {
  const FoldTask t{.y = args.operands[0], .x = args.results[0], .p = p};
  const int64_t n = p.n_pictures * p.rows.picture * p.columns.picture * p.channels;
  if (n == 0) return;
  if (p.channels % kEight == 0 && is_aligned(t.x, 16) && is_aligned(t.y, 16)) {
    fold_pixels<kEight><<<grid_of(ceil_div(n / kEight, kThreads)), kThreads, 0, args.stream>>>(t);
  } else {
    fold_pixels<1><<<grid_of(ceil_div(n, kThreads)), kThreads, 0, args.stream>>>(t);
  }
  check_launch("fold");
}

}  // namespace octet::cuda
