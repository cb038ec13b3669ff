// Products of tiles in shared memory by a warp's tensor core instructions, m16n8k16: the warp owns
// M blocks of sixteen rows. Lane l holds, of a result of 8 columns, rows l / 4 and l / 4 + 8,
// columns l % 4 * 2 and the next.
#pragma once

#include "backends/cuda/kernels/attention/attention_fetch.cuh"
#include "backends/cuda/kernels/common/tensor_core.cuh"

namespace octet::cuda {

inline constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

// A warp's share of a product: M x 16 rows by N columns.
template <int M, int N>
using Products = float[M][N / 8][4];

// Four 8 x 8 blocks; a lane gives the address of one row of one block.
__device__ __forceinline__ void load_blocks(const uint16_t* row, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, each block transposed.
__device__ __forceinline__ void load_transposed(const uint16_t* row, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row))
               : "memory");
}

// s = own times the transpose of other: M x 16 rows at own against N rows at other, along D.
template <Dtype T, int D, int M, int N>
__device__ __forceinline__ void multiply_rows(const uint16_t* own, const uint16_t* other,
                                              Products<M, N>& s) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint16_t* mine = own + lane % 16 * kRowLength<D> + lane / 16 * 8;
  const uint16_t* theirs = other + (lane / 16 * 8 + lane % 8) * kRowLength<D> + lane / 8 % 2 * 8;
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < N / 8; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
  }
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) load_blocks(mine + m * 16 * kRowLength<D> + k, a[m]);
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      uint32_t b[4];
      load_blocks(theirs + n * 16 * kRowLength<D> + k, b);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add<T>(s[m][2 * n], a[m], b[0], b[1]);
        multiply_add<T>(s[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// sum += p times other: p as multiply_rows leaves it, other N rows of D.
template <Dtype T, int D, int M, int N>
__device__ __forceinline__ void add_products(const Products<M, N>& p, const uint16_t* other,
                                             Products<M, D>& sum) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint16_t* row = other + lane % 16 * kRowLength<D> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const auto &low = p[m][2 * k], &high = p[m][2 * k + 1];
      a[m][0] = two_of<T>(low[0], low[1]);
      a[m][1] = two_of<T>(low[2], low[3]);
      a[m][2] = two_of<T>(high[0], high[1]);
      a[m][3] = two_of<T>(high[2], high[3]);
    }
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t b[4];
      load_transposed(row + k * 16 * kRowLength<D> + n * 16, b);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add<T>(sum[m][2 * n], a[m], b[0], b[1]);
        multiply_add<T>(sum[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Place of element i of a lane's block n: its row among sixteen, its column among the tile's.
__device__ __forceinline__ int row_at(int i) {
  return static_cast<int>(threadIdx.x % 32) / 4 + i / 2 * 8;
}
__device__ __forceinline__ int column_at(int n, int i) {
  return n * 8 + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
}

// Destination of a warp's rows.
struct RowsOut {
  void* x;
  Head head;
  int64_t first;
};
// sum times `factor` of its rows, through shared memory that is the warp's own.
template <Dtype T, int D, int M>
__device__ __forceinline__ void store_rows(const AttentionParams& p, const RowsOut& out,
                                           const Products<M, D>& sum, const float (&factor)[M][2],
                                           uint16_t* own) {
  __syncwarp();
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t two = two_of<T>(sum[m][n][2 * half] * factor[m][half],
                                       sum[m][n][2 * half + 1] * factor[m][half]);
        uint16_t* row = own + (m * 16 + row_at(2 * half)) * kRowLength<D>;
        *reinterpret_cast<uint32_t*>(row + column_at(n, 0)) = two;
      }
    }
  }
  __syncwarp();
  constexpr int kPacks = D / 8;
  auto* to = static_cast<uint16_t*>(out.x) + out.head.first;
#pragma unroll 4
  for (int pack = static_cast<int>(threadIdx.x % 32); pack < M * 16 * kPacks; pack += 32) {
    const int row = pack / kPacks, column = pack % kPacks * 8;
    if (out.first + row >= out.head.rows || column >= p.head_dim) continue;
    store_pack<8>(to + (out.first + row) * out.head.stride + column,
                  load_pack<8>(own + row * kRowLength<D> + column));
  }
}

// One factor for all rows.
template <Dtype T, int D, int M>
__device__ __forceinline__ void store_rows(const AttentionParams& p, const RowsOut& out,
                                           const Products<M, D>& sum, float factor, uint16_t* own) {
  float all[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m) all[m][0] = all[m][1] = factor;
  store_rows<T, D, M>(p, out, sum, all, own);
}

}  // namespace octet::cuda
