// Products of tiles in shared memory by a warp's tensor core instructions, m16n8k16: the warp owns
// sixteen rows. Lane l holds, of a result of 8 columns, rows l / 4 and l / 4 + 8, columns l % 4 * 2
// and the next. Rows of a tile are 16 bytes longer than D: eight rows lie in all banks.
#pragma once

#include "backends/cuda/kernels/attention_tiles.cuh"

namespace octet::cuda {

template <int D>
inline constexpr int kRowLength = D + 8;

template <Dtype T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  if constexpr (T == Dtype::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Four 8 x 8 blocks, each transposed; a lane gives the address of one row of one block.
__device__ __forceinline__ void load_transposed(const uint16_t* row, uint32_t (&x)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ uint32_t two_at(const uint16_t* x) {
  return *reinterpret_cast<const uint32_t*>(x);
}
template <Dtype T>
__device__ __forceinline__ uint32_t two_of(float low, float high) {
  return from_float<T>(low) | static_cast<uint32_t>(from_float<T>(high)) << 16;
}

// s = own times the transpose of other: 16 rows at own against N rows at other, along D.
template <Dtype T, int D, int N>
__device__ __forceinline__ void multiply_rows(const uint16_t* own, const uint16_t* other,
                                              float (&s)[N / 8][4]) {
  const int row = static_cast<int>(threadIdx.x % 32) / 4;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int n = 0; n < N / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll 2  // more would hold more of the tiles in registers than there are
  for (int k = 0; k < D; k += 16) {
    const uint16_t* mine = own + row * kRowLength<D> + column + k;
    const uint32_t a[4] = {two_at(mine), two_at(mine + 8 * kRowLength<D>), two_at(mine + 8),
                           two_at(mine + 8 * kRowLength<D> + 8)};
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      const uint16_t* theirs = other + (n * 8 + row) * kRowLength<D> + column + k;
      multiply_add<T>(s[n], a, two_at(theirs), two_at(theirs + 8));
    }
  }
}

// sum += p times other: p 16 x N as multiply_rows leaves it, other N rows of D.
template <Dtype T, int D, int N>
__device__ __forceinline__ void add_products(const float (&p)[N / 8][4], const uint16_t* other,
                                             float (&sum)[D / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    const auto &low = p[2 * k], &high = p[2 * k + 1];
    const uint32_t a[4] = {two_of<T>(low[0], low[1]), two_of<T>(low[2], low[3]),
                           two_of<T>(high[0], high[1]), two_of<T>(high[2], high[3])};
    const uint16_t* row = other + (k * 16 + lane % 16) * kRowLength<D> + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t b[4];
      load_transposed(row + n * 16, b);
      multiply_add<T>(sum[2 * n], a, b[0], b[1]);
      multiply_add<T>(sum[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Rows [first, first + kRows) of a head by kThreads threads; zeros beyond sequence and head.
template <int D, int kRows, int kThreads>
__device__ __forceinline__ void load_rows(const AttentionParams& p, const void* x, const Head& head,
                                          int64_t first, uint16_t* tile) {
  constexpr int kPacks = D / 8;
  const auto* from = static_cast<const uint16_t*>(x) + head.first;
#pragma unroll
  for (int i = 0; i < kRows * kPacks / kThreads; ++i) {
    const int pack = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = pack / kPacks, column = pack % kPacks * 8;
    Pack<uint16_t, 8> values{};
    if (first + row < p.seq && column < p.head_dim) {
      values = load_pack<8>(from + (first + row) * head.stride + column);
    }
    store_pack<8>(tile + row * kRowLength<D> + column, values);
  }
}

// Where a warp's sixteen rows go.
struct RowsOut {
  void* x;
  Head head;
  int64_t first;
};
// sum times `factor` of its half.
template <Dtype T, int D>
__device__ __forceinline__ void store_rows(const AttentionParams& p, const RowsOut& out,
                                           const float (&sum)[D / 8][4], const float (&factor)[2]) {
  const int row = static_cast<int>(threadIdx.x % 32) / 4;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  auto* to = static_cast<uint16_t*>(out.x) + out.head.first;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t t = out.first + row + 8 * half;
    if (t >= p.seq) continue;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      if (n * 8 >= p.head_dim) continue;
      const uint32_t two =
          two_of<T>(sum[n][2 * half] * factor[half], sum[n][2 * half + 1] * factor[half]);
      *reinterpret_cast<uint32_t*>(to + t * out.head.stride + n * 8 + column) = two;
    }
  }
}

}  // namespace octet::cuda
