// Products with a few rows, as a decoded token has them: what counts is how fast the weights are
// read. A block makes eight columns of y for all rows; each thread takes the same sixteen bytes of
// each column, so that it widens x once for all, and has eight accesses in flight. Sums are f32, in
// an order that neither the number of rows nor of columns changes. Every block reads all of x, so
// that more rows than these are the library's.
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/kernels/common/row_access.cuh"
#include "backends/cuda/kernels/gemm/gemm.cuh"
#include "backends/cuda/launch/join.h"
#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kColumns = 8;

struct FewRows {
  const void *x, *w, *c;
  void* y;
  const float *scale_a, *scale_b;  // nullptr: 1
  int m;
  int64_t n, k;
  bool reads_ahead;  // no kernel of the stream writes w
};

// Elements of sixteen bytes.
template <Dtype D>
inline constexpr int kPerAccess = 16 / dtype_bytes(D);

template <Dtype D>
__device__ __forceinline__ void unpack_access(const uint4& raw, float* v) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (D == Dtype::e4m3) {
      widen_e4m3(words[i], v + 4 * i);
    } else {
      unpack_pair<D>(words[i], v + 2 * i);
    }
  }
}

// The elements of x that sixteen bytes of weights meet.
template <Dtype X, int N>
__device__ __forceinline__ void load_values(const FewRows& a, int row, int piece, float (&v)[N]) {
  constexpr int kAccesses = N / kPerAccess<X>;
  const auto* from =
      static_cast<const uint4*>(a.x) + (int64_t{row} * (a.k / N) + piece) * kAccesses;
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) unpack_access<X>(from[i], v + i * kPerAccess<X>);
}

__device__ __forceinline__ float scale_of(const FewRows& a) {
  return (a.scale_a == nullptr ? 1.0f : *a.scale_a) * (a.scale_b == nullptr ? 1.0f : *a.scale_b);
}

// This thread's piece of a block's columns; zeros behind the last.
struct Weights {
  uint4 at[kColumns];

  __device__ __forceinline__ void load(const uint4* w, int piece, int pieces, int n_columns) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      at[c] = piece < pieces && c < n_columns ? __ldcs(w + int64_t{c} * pieces + piece)
                                              : make_uint4(0, 0, 0, 0);
    }
  }
};

// The sum over the warp of v[lane / 4], each added up by halves: lanes give away the columns that
// they do not end with, so that nine exchanges do for eight columns.
__device__ __forceinline__ float sum_over_lanes(const float (&v)[kColumns], int lane) {
  float four[4], two[2];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const bool high = (lane & 16) != 0;
    four[c] = (high ? v[c + 4] : v[c]) + __shfl_xor_sync(~0u, high ? v[c] : v[c + 4], 16);
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const bool high = (lane & 8) != 0;
    two[c] = (high ? four[c + 2] : four[c]) + __shfl_xor_sync(~0u, high ? four[c] : four[c + 2], 8);
  }
  const bool high = (lane & 4) != 0;
  float sum = (high ? two[1] : two[0]) + __shfl_xor_sync(~0u, high ? two[0] : two[1], 4);
  sum += __shfl_xor_sync(~0u, sum, 2);
  return sum + __shfl_xor_sync(~0u, sum, 1);
}

template <Dtype X, Dtype W, Dtype Y, int M>
__global__ void __launch_bounds__(kThreads, M == 1 ? 8 : 1)
    few_rows(const __grid_constant__ Parts<FewRows> products) {
  constexpr int N = kPerAccess<W>;
  __shared__ float parts[kWarps][M][kColumns];
  const PartBlock mine = part_of_block(products);
  const FewRows& a = products.of[mine.part];
  const int64_t column = int64_t{mine.block} * kColumns;
  const int n_columns = static_cast<int>(min(a.n - column, int64_t{kColumns}));
  const auto pieces = static_cast<int>(a.k / N);  // of a column
  const auto* w = static_cast<const uint4*>(a.w) + column * pieces;
  Weights raw;
  if (a.reads_ahead) raw.load(w, static_cast<int>(threadIdx.x), pieces, n_columns);
  wait_for_previous();
  start_next();
  if (!a.reads_ahead) raw.load(w, static_cast<int>(threadIdx.x), pieces, n_columns);
  float sums[M][kColumns] = {};
  for (int piece = static_cast<int>(threadIdx.x); piece < pieces;) {
#pragma unroll
    for (int r = 0; r < M; ++r) {
      if (r >= a.m) break;
      float values[N];
      load_values<X>(a, r, piece, values);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float weights[N];
        unpack_access<W>(raw.at[c], weights);
#pragma unroll
        for (int j = 0; j < N; ++j) sums[r][c] = __fmaf_rn(values[j], weights[j], sums[r][c]);
      }
    }
    piece += kThreads;
    raw.load(w, piece, pieces, n_columns);
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int r = 0; r < M; ++r) {
    const float sum = sum_over_lanes(sums[r], lane);
    if (lane % 4 == 0) parts[warp][r][lane / 4] = sum;
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x) / kColumns,
            c = static_cast<int>(threadIdx.x) % kColumns;
  if (r >= a.m || c >= n_columns) return;
  float sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += parts[i][r][c];
  const int64_t at = r * a.n + column + c;
  float y = sum * scale_of(a);
  if (a.c != nullptr) y += to_float<Y>(static_cast<const Storage<Y>*>(a.c)[at]);
  static_cast<Storage<Y>*>(a.y)[at] = from_float<Y>(y);
}

template <Dtype X, Dtype W, Dtype Y>
void launch_rows(const Parts<FewRows>& products, cudaStream_t stream) {
  const bool one_row = products.of[0].m == 1;
  launch_early(one_row ? few_rows<X, W, Y, 1> : few_rows<X, W, Y, kFewRows>,
               {products.n_blocks(), kThreads}, stream, products);
}

class FewRowsGemm : public Prepared {
 public:
  explicit FewRowsGemm(const GemmParams& p) : p_(p) {}

  // True if one kernel makes both.
  bool goes_with(const FewRowsGemm& other) const {
    return p_.a == other.p_.a && p_.b == other.p_.b && p_.y == other.p_.y && p_.m == other.p_.m;
  }
  void launch(const Launch& args) override {
    Parts<FewRows> products;
    add_to(products, args);
    launch_products(products, args.stream);
  }
  void launch_joined(std::span<const Joined> all) override {
    const auto products = join_parts<FewRows>(*this, all);
    if (!products) return Prepared::launch_joined(all);
    launch_products(*products, all[0].args.stream);
  }
  void add_to(Parts<FewRows>& products, const Launch& args) const {
    const FewRows a{.x = args.operands[GemmOperand::a],
                    .w = args.operands[GemmOperand::b],
                    .c = p_.has_c ? args.operands[GemmOperand::c] : nullptr,
                    .y = args.results[0],
                    .scale_a = p_.has_scale_a ? args.in<float>(GemmOperand::scale_a) : nullptr,
                    .scale_b = p_.has_scale_b ? args.in<float>(GemmOperand::scale_b) : nullptr,
                    .m = static_cast<int>(p_.m),
                    .n = p_.n,
                    .k = p_.k,
                    .reads_ahead = p_.b_is_constant};
    products.add(a, static_cast<unsigned>((a.n + kColumns - 1) / kColumns));
  }

 private:
  void launch_products(const Parts<FewRows>& products, cudaStream_t stream) const {
    visit_high_precision(p_.y, [&]<Dtype Y>() {
      if (p_.a == Dtype::e4m3) return launch_rows<Dtype::e4m3, Dtype::e4m3, Y>(products, stream);
      p_.a == Dtype::bf16 ? launch_x<Dtype::bf16, Y>(products, stream)
                          : launch_x<Dtype::fp16, Y>(products, stream);
    });
  }
  template <Dtype X, Dtype Y>
  void launch_x(const Parts<FewRows>& products, cudaStream_t stream) const {
    p_.b == Dtype::e4m3 ? launch_rows<X, Dtype::e4m3, Y>(products, stream)
                        : launch_rows<X, X, Y>(products, stream);
  }

  GemmParams p_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_few_rows(const GemmParams& p) {
  return std::make_unique<FewRowsGemm>(p);
}

}  // namespace octet::cuda
