// Depthwise convolutions and their gradients: params/pictures.h.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/move/move.cuh"

namespace octet::cuda {
namespace {

constexpr int kSide = 3;       // of windows whose places are known when a kernel is compiled
constexpr int kMaxLanes = 32;  // channels, or eights of them, beside each other
constexpr int kMaxPixels = 8;  // of a thread

// kWidth channels of a pixel: eight, or one.
template <int kWidth>
__device__ __forceinline__ void load_channels(const void* x, int64_t i, Dtype dtype,
                                              float (&v)[kWidth]) {
  if constexpr (kWidth == 1) {
    v[0] = load_float(x, i, dtype);
  } else {
    widen8(load_raw8(x, i, dtype), dtype, v);
  }
}

struct PixelTask {
  const void* x;  // pictures, or their gradient where windows are the operand's pixels
  const void* weight;
  void* y;
  DepthwiseParams p;
  int lanes;
  unsigned n_pixels;  // of the result
};

// The operand's pixel along an axis that place i of the result's pixel means, or -1.
template <bool kGradient>
__device__ __forceinline__ int source_of(const WindowAxis& a, int pixel, int i) {
  if constexpr (kGradient) {
    const int at = pixel + a.low - i * a.dilation, window = at / a.stride;
    return at >= 0 && window * a.stride == at && window < a.n_windows ? window : -1;
  } else {
    const int at = pixel * a.stride + i * a.dilation - a.low;
    return at < a.picture ? max(at, -1) : -1;
  }
}

// A block has `lanes` times kWidth channels of pixels; their weights lie in shared memory by place.
template <Dtype X, int kWidth, int kWindow, bool kGradient>
__global__ void __launch_bounds__(kThreads) depthwise_pixels(const __grid_constant__ PixelTask t) {
  extern __shared__ __align__(16) float weights[];
  const DepthwiseParams& p = t.p;
  const Dtype dx = known(X, p.first), dy = known(X, p.result);
  const int height = kWindow > 0 ? kWindow : p.rows.window,
            width = kWindow > 0 ? kWindow : p.columns.window;
  const int n_beside = t.lanes * kWidth, channels = static_cast<int>(p.channels);
  const int base = static_cast<int>(blockIdx.y) * n_beside;
  for (int i = threadIdx.x; i < height * width * n_beside; i += kThreads) {
    const int place = i / n_beside, c = base + i - place * n_beside;
    weights[i] =
        c < channels ? load_float(t.weight, int64_t{c} * (height * width) + place, p.second) : 0.0f;
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % t.lanes, c = base + lane * kWidth;
  const unsigned beside = kThreads / t.lanes, first = threadIdx.x / t.lanes;
  if (first >= beside || c >= channels) return;
  const unsigned n_rows = kGradient ? p.rows.picture : p.rows.n_windows,
                 n_columns = kGradient ? p.columns.picture : p.columns.n_windows;
  const int source_rows = kGradient ? p.rows.n_windows : p.rows.picture,
            source_columns = kGradient ? p.columns.n_windows : p.columns.picture;
  for (unsigned pixel = blockIdx.x * beside + first; pixel < t.n_pixels;
       pixel += gridDim.x * beside) {
    const unsigned line = pixel / n_columns, picture = line / n_rows;
    const int r = static_cast<int>(line - picture * n_rows),
              s = static_cast<int>(pixel - line * n_columns);
    float sum[kWidth] = {};
#pragma unroll
    for (int at = 0; at < height; ++at) {
      const int i = kGradient ? height - 1 - at : at;
      const int row = source_of<kGradient>(p.rows, r, i);
      if (kGradient && row < 0) continue;
      const int64_t from = (int64_t{picture} * source_rows + row) * source_columns;
#pragma unroll
      for (int beyond = 0; beyond < width; ++beyond) {
        const int j = kGradient ? width - 1 - beyond : beyond;
        const int column = source_of<kGradient>(p.columns, s, j);
        if (kGradient && column < 0) continue;
        float v[kWidth] = {};  // outside of a picture zeros
        if (row >= 0 && column >= 0)
          load_channels<kWidth>(t.x, (from + column) * channels + c, dx, v);
        const float* const w = weights + (i * width + j) * n_beside + lane * kWidth;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[k] += v[k] * w[k];
      }
    }
    const int64_t to = int64_t{pixel} * channels + c;
    if constexpr (kWidth == 1) {
      store_float(t.y, to, dy, sum[0]);
    } else {
      store_raw8(t.y, to, dy, narrow8(sum, dy));
    }
  }
}

struct RowTask {
  const void *dy, *x;
  float* sums;  // [blocks, places, channels]
  DepthwiseParams p;
  int lanes;
  int64_t n_rows;  // of windows, of all pictures
};

constexpr int kBatch = 3;  // places whose sums a thread has at a time
constexpr int kBlockRows = static_cast<int>(kDepthwiseBlockRows);
constexpr int kRowThreads = kMaxLanes * kBlockRows;

// A block has kBlockRows rows of windows, each a thread's for its channels.
template <Dtype X, int kWidth>
__global__ void __launch_bounds__(kRowThreads)
    depthwise_row_sums(const __grid_constant__ RowTask t) {
  __shared__ float sums[kBatch][kBlockRows][kMaxLanes * kWidth];
  const DepthwiseParams& p = t.p;
  const Dtype of_dy = known(X, p.first), of_x = known(X, p.second);
  const int channels = static_cast<int>(p.channels), thread = static_cast<int>(threadIdx.x);
  const int own = thread / t.lanes, lane = thread - own * t.lanes;
  const int c = (static_cast<int>(blockIdx.y) * t.lanes + lane) * kWidth;
  const int64_t row = int64_t{blockIdx.x} * kBlockRows + own;
  const bool is_active = row < t.n_rows && c < channels;
  const int64_t picture = row / p.rows.n_windows;
  const int r = static_cast<int>(row - picture * p.rows.n_windows);
  const int64_t windows = row * p.columns.n_windows;
  float* const to = t.sums + int64_t{blockIdx.x} * p.rows.window * p.columns.window * channels + c;
  for (int i = 0; i < p.rows.window; ++i) {
    const int line = source_of<false>(p.rows, r, i);
    const int64_t pixels = (picture * p.rows.picture + line) * p.columns.picture;
    for (int first = 0; first < p.columns.window; first += kBatch) {
      float sum[kBatch][kWidth] = {};
      if (is_active) {
#pragma unroll 2
        for (int q = 0; q < p.columns.n_windows; ++q) {
          float dy[kWidth];
          load_channels<kWidth>(t.dy, (windows + q) * channels + c, of_dy, dy);
#pragma unroll
          for (int j = 0; j < kBatch; ++j) {
            const int column = source_of<false>(p.columns, q, first + j);
            float x[kWidth] = {};  // outside of a picture zeros
            if (line >= 0 && column >= 0 && first + j < p.columns.window)
              load_channels<kWidth>(t.x, (pixels + column) * channels + c, of_x, x);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sum[j][k] += dy[k] * x[k];
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[j][own][lane * kWidth + k] = sum[j][k];
      __syncthreads();
      // The threads of the first rows have a place each.
      if (own < kBatch && first + own < p.columns.window && c < channels) {
        const int64_t place = int64_t{i} * p.columns.window + first + own;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          float total = 0;
          for (int of_row = 0; of_row < kBlockRows; ++of_row)
            total += sums[own][of_row][lane * kWidth + k];
          to[place * channels + k] = total;
        }
      }
      __syncthreads();
    }
  }
}

struct JoinTask {
  const float* sums;
  void* y;
  int64_t n_blocks, n_columns;  // a column: a place and a channel
  int channels, places;
  Dtype dtype;
};

constexpr int kJoined = static_cast<int>(kDepthwiseJoinedSums);
constexpr int kJoinThreads = 32 * kJoined;

__global__ void __launch_bounds__(kJoinThreads) join_depthwise(const __grid_constant__ JoinTask t) {
  __shared__ double sums[kJoined][32];
  const unsigned own = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t column = int64_t{blockIdx.x} * 32 + lane;
  double sum = 0;
  if (column < t.n_columns) {
    for (int64_t block = own; block < t.n_blocks; block += kJoined)
      sum += static_cast<double>(t.sums[block * t.n_columns + column]);
  }
  sums[own][lane] = sum;
  for (unsigned half = kJoined / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < half) sums[own][lane] += sums[own + half][lane];
  }
  if (own > 0 || column >= t.n_columns) return;
  const int64_t place = column / t.channels, c = column - place * t.channels;
  store_float(t.y, c * t.places + place, t.dtype, static_cast<float>(sums[0][lane]));
}

template <Dtype X, int kWidth, int kWindow>
void launch_pixels(const PixelTask& t, const Launch& args) {
  const DepthwiseParams& p = t.p;
  const int64_t n_beside = int64_t{t.lanes} * kWidth, pixels = kThreads / t.lanes;
  const dim3 grid(grid_of(ceil_div(t.n_pixels, pixels * kMaxPixels)),
                  grid_of(ceil_div(p.channels, n_beside)));
  const auto bytes = static_cast<size_t>(4 * n_beside * p.rows.window * p.columns.window);
  if (p.is_gradient) {
    depthwise_pixels<X, kWidth, kWindow, true><<<grid, kThreads, bytes, args.stream>>>(t);
  } else {
    depthwise_pixels<X, kWidth, kWindow, false><<<grid, kThreads, bytes, args.stream>>>(t);
  }
  check_launch("depthwise");
}

int lanes_of(int64_t channels, int width) {
  const int64_t lanes = ceil_div(channels, width);
  return static_cast<int>(lanes < kMaxLanes ? lanes : kMaxLanes);
}

template <Dtype X, int kWidth>
void launch_rows(RowTask t, const Launch& args) {
  const DepthwiseParams& p = t.p;
  t.lanes = lanes_of(p.channels, kWidth);
  const dim3 grid(grid_of(ceil_div(t.n_rows, kBlockRows)),
                  grid_of(ceil_div(p.channels, t.lanes * kWidth)));
  depthwise_row_sums<X, kWidth><<<grid, t.lanes * kBlockRows, 0, args.stream>>>(t);
  check_launch("depthwise sums");
}

bool in_eights(const DepthwiseParams& p, std::initializer_list<const void*> addresses) {
  bool all = p.channels % kEight == 0;
  for (const void* address : addresses) all = all && is_aligned(address, 16);
  return all;
}

}  // namespace

void run_depthwise(const DepthwiseParams& p, const Launch& args) {
  const int64_t n = p.is_gradient ? int64_t{p.rows.picture} * p.columns.picture
                                  : int64_t{p.rows.n_windows} * p.columns.n_windows;
  if (p.n_pictures * n * p.channels == 0) return;
  PixelTask t{.x = args.operands[0],
              .weight = args.operands[1],
              .y = args.results[0],
              .p = p,
              .lanes = 1,
              .n_pixels = static_cast<unsigned>(p.n_pictures * n)};
  const int64_t n_places = int64_t{p.rows.window} * p.columns.window;
  const auto lanes = [&](int width) {
    const int most = static_cast<int>(kDepthwiseSharedFloats / (n_places * width));
    const int wanted = lanes_of(p.channels, width);
    return wanted < most ? wanted : most;
  };
  if (!in_eights(p, {t.x, t.y})) {
    t.lanes = lanes(1);
    return launch_pixels<Dtype::real, 1, 0>(t, args);
  }
  t.lanes = lanes(kEight);
  const bool is_usual = p.first == Dtype::bf16 && p.result == Dtype::bf16 &&
                        p.rows.window == kSide && p.columns.window == kSide;
  is_usual ? launch_pixels<Dtype::bf16, kEight, kSide>(t, args)
           : launch_pixels<Dtype::real, kEight, 0>(t, args);
}

void run_depthwise_weight(const DepthwiseParams& p, const Launch& args) {
  const int64_t n_rows = p.n_pictures * p.rows.n_windows;
  const int64_t n_places = int64_t{p.rows.window} * p.columns.window;
  if (n_rows * p.channels == 0) return;
  const RowTask t{.dy = args.operands[0],
                  .x = args.operands[1],
                  .sums = static_cast<float*>(args.scratch),
                  .p = p,
                  .lanes = 1,
                  .n_rows = n_rows};
  if (!in_eights(p, {t.dy, t.x})) {
    launch_rows<Dtype::real, 1>(t, args);
  } else if (p.first == Dtype::bf16 && p.second == Dtype::bf16) {
    launch_rows<Dtype::bf16, kEight>(t, args);
  } else {
    launch_rows<Dtype::real, kEight>(t, args);
  }
  const JoinTask joined{.sums = t.sums,
                        .y = args.results[0],
                        .n_blocks = ceil_div(n_rows, kBlockRows),
                        .n_columns = n_places * p.channels,
                        .channels = static_cast<int>(p.channels),
                        .places = static_cast<int>(n_places),
                        .dtype = p.result};
  const unsigned grid = grid_of(ceil_div(joined.n_columns, 32));
  join_depthwise<<<grid, kJoinThreads, 0, args.stream>>>(joined);
  check_launch("depthwise joined");
}

}  // namespace octet::cuda
