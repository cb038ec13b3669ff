// Products with a few rows, as a decoded token has them: what counts is how fast the weights are
// read. A warp makes one column of y for all rows; sums are f32, in an order that neither the
// number of rows nor of columns changes. Every warp reads all of x, so that more rows than these
// are the library's.
#include "backends/cuda/kernels/element.cuh"
#include "backends/cuda/kernels/gemm.cuh"
#include "backends/cuda/kernels/rows_access.cuh"
#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kAtOnce = 4;  // accesses of the weights that are in flight together

struct FewRows {
  const void *x, *w, *c;
  void* y;
  const float *scale_a, *scale_b;  // nullptr: 1
  int m;
  int64_t n, k;
};

// Elements of sixteen bytes.
template <Dtype D>
inline constexpr int kPerAccess = 16 / dtype_bytes(D);

template <Dtype D>
__device__ __forceinline__ void unpack_access(const uint4& raw, float (&v)[kPerAccess<D>]) {
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

template <Dtype D>
__device__ __forceinline__ float scale_of(const FewRows& a) {
  if constexpr (D != Dtype::e4m3) return 1.0f;
  return *a.scale_a * *a.scale_b;
}

template <Dtype D, Dtype Y, int M>
__global__ void __launch_bounds__(kWarps * 32) few_rows(const __grid_constant__ FewRows a) {
  constexpr int N = kPerAccess<D>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t column = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (column >= a.n) return;
  const auto pieces = static_cast<int>(a.k / N);  // of a row
  const auto* w = static_cast<const uint4*>(a.w) + column * pieces;
  const auto* x = static_cast<const uint4*>(a.x);
  float sums[M] = {};
  for (int first = lane; first < pieces; first += 32 * kAtOnce) {
    uint4 raw[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + 32 * u;
      raw[u] = i < pieces ? __ldcs(w + i) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + 32 * u;
      if (i >= pieces) break;
      float weights[N];
      unpack_access<D>(raw[u], weights);
#pragma unroll
      for (int r = 0; r < M; ++r) {
        if (r >= a.m) break;
        float values[N];
        unpack_access<D>(x[int64_t{r} * pieces + i], values);
#pragma unroll
        for (int j = 0; j < N; ++j) sums[r] = __fmaf_rn(values[j], weights[j], sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < M; ++r) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
  }
  if (lane != 0) return;
  const float scale = scale_of<D>(a);
#pragma unroll
  for (int r = 0; r < M; ++r) {
    if (r >= a.m) break;
    const int64_t at = r * a.n + column;
    float y = sums[r] * scale;
    if (a.c != nullptr) y += to_float<Y>(static_cast<const Storage<Y>*>(a.c)[at]);
    static_cast<Storage<Y>*>(a.y)[at] = from_float<Y>(y);
  }
}

template <Dtype D, Dtype Y>
void launch_rows(const FewRows& a, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((a.n + kWarps - 1) / kWarps);
  a.m == 1 ? few_rows<D, Y, 1><<<blocks, kWarps * 32, 0, stream>>>(a)
           : few_rows<D, Y, kFewRows><<<blocks, kWarps * 32, 0, stream>>>(a);
  check_launch("gemm of a few rows");
}

class FewRowsGemm : public Prepared {
 public:
  explicit FewRowsGemm(const GemmParams& p) : p_(p) {}
  void launch(const Launch& args) override {
    const FewRows a{.x = args.operands[GemmOperand::a],
                    .w = args.operands[GemmOperand::b],
                    .c = p_.has_c ? args.operands[GemmOperand::c] : nullptr,
                    .y = args.results[0],
                    .scale_a = p_.has_scale_a ? args.in<float>(GemmOperand::scale_a) : nullptr,
                    .scale_b = p_.has_scale_b ? args.in<float>(GemmOperand::scale_b) : nullptr,
                    .m = static_cast<int>(p_.m),
                    .n = p_.n,
                    .k = p_.k};
    visit_wide(p_.y, [&]<Dtype Y>() {
      if (p_.a == Dtype::e4m3) return launch_rows<Dtype::e4m3, Y>(a, args.stream);
      p_.a == Dtype::bf16 ? launch_rows<Dtype::bf16, Y>(a, args.stream)
                          : launch_rows<Dtype::fp16, Y>(a, args.stream);
    });
  }

 private:
  GemmParams p_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_few_rows(const GemmParams& p) {
  return std::make_unique<FewRowsGemm>(p);
}

}  // namespace octet::cuda
