#include <algorithm>

#include "backends/cuda/kernels/gemm/gemm.cuh"
#include "backends/cuda/kernels/move/move.cuh"
#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

// The product of `rows` of p's rows, in f32.
GemmParams in_f32(GemmParams p, int64_t rows) {
  if (p.trans_a && rows != p.m) p.lda = p.m;
  p.m = rows;
  p.c = p.y = Dtype::f32;
  return p;
}

template <typename T>
T* moved(T* address, int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return address == nullptr ? nullptr : static_cast<Byte*>(address) + bytes;
}

}  // namespace

GemmScratch gemm_scratch(const GemmParams& p, void* scratch) {
  auto* at = static_cast<std::byte*>(scratch);
  auto* behind = at + kGemmWorkspace;
  return {.workspace = at,
          .alpha_beta = reinterpret_cast<float*>(behind),
          .sums = behind + 256,
          .factors = behind + 256 + sums_bytes(p)};
}

GemmProduct::GemmProduct(Context& context, const GemmParams& p, AlphaPlace place) : p_(p) {
  if (!has_own_sums(p)) {
    whole_ = std::make_unique<GemmProblem>(context, p, place, kGemmWorkspace);
    return;
  }
  const int64_t rows = rows_of_sums(p), rest = p.m % rows;
  whole_ = std::make_unique<GemmProblem>(context, in_f32(p, rows), place, kGemmWorkspace);
  if (rest > 0)
    rest_ = std::make_unique<GemmProblem>(context, in_f32(p, rest), place, kGemmWorkspace);
}

void GemmProduct::run(const GemmCall& call, void* sums, cudaStream_t stream) {
  has_own_sums(p_) ? run_apart(call, sums, stream) : whole_->run(call, stream);
}

void GemmProduct::run_apart(const GemmCall& call, void* sums, cudaStream_t stream) {
  const int64_t rows = rows_of_sums(p_);
  for (int64_t first = 0; first < p_.m; first += rows) {
    const int64_t n_rows = std::min(rows, p_.m - first), n = n_rows * p_.n;
    void* const y = moved(call.y, first * p_.n * dtype_bytes(p_.y));
    GemmCall part = call;
    part.a = moved(call.a, first * (p_.trans_a ? 1 : p_.k) * dtype_bytes(p_.a));
    part.y = p_.y == Dtype::f32 ? y : sums;
    part.c = nullptr;
    if (p_.has_c) {
      part.c = moved(call.c, first * p_.n * dtype_bytes(p_.c));
      if (p_.c != Dtype::f32) {
        launch_cast({part.c, part.y, n, p_.c, Dtype::f32}, stream);
        part.c = part.y;
      }
    }
    (n_rows == rows ? whole_ : rest_)->run(part, stream);
    if (p_.y != Dtype::f32) launch_cast({sums, y, n, Dtype::f32, p_.y}, stream);
  }
}

}  // namespace octet::cuda
