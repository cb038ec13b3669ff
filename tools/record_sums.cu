// Products by mma.sync, one instruction's sums at a time, for tools/record_sums.py:
//
//   nvcc -O2 -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler -fPIC -o FOLDER/mma.so
//   tools/record_sums.cu
//
// A tile is d[16, 8] = c[16, 8] + a[16, K] b[8, K]^T, `steps` instructions of 32 bytes of a row
// each, one after another on the same f32 sums. Tiles, factors and sums lie one behind the other,
// row-major. Every type has the same layout in bytes: lane l holds of a the rows l / 4 and l / 4 +
// 8 and of b the row l / 4, from bytes 4 (l % 4) and 4 (l % 4) + 16 on.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

enum class Kind { e4m3_e4m3, e5m2_e4m3, e4m3_e5m2, e5m2_e5m2, bf16, fp16, tf32 };

#define OCTET_MMA(SHAPE_AND_TYPES)                                      \
  asm volatile("mma.sync.aligned." SHAPE_AND_TYPES                      \
               " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <Kind K>
__device__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (K == Kind::e4m3_e4m3) OCTET_MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32");
  if constexpr (K == Kind::e5m2_e4m3) OCTET_MMA("m16n8k32.row.col.f32.e5m2.e4m3.f32");
  if constexpr (K == Kind::e4m3_e5m2) OCTET_MMA("m16n8k32.row.col.f32.e4m3.e5m2.f32");
  if constexpr (K == Kind::e5m2_e5m2) OCTET_MMA("m16n8k32.row.col.f32.e5m2.e5m2.f32");
  if constexpr (K == Kind::bf16) OCTET_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
  if constexpr (K == Kind::fp16) OCTET_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  if constexpr (K == Kind::tf32) OCTET_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
}

template <Kind K>
__global__ void tiles(const uint8_t* a, const uint8_t* b, const float* c, float* d, int steps) {
  const int lane = threadIdx.x, row = lane / 4, col = lane % 4 * 2;
  const int64_t row_bytes = int64_t{32} * steps;
  a += blockIdx.x * 16 * row_bytes, b += blockIdx.x * 8 * row_bytes;
  c += blockIdx.x * 128, d += blockIdx.x * 128;
  const auto word = [&](const uint8_t* from, int r, int64_t byte) {
    return *reinterpret_cast<const uint32_t*>(from + r * row_bytes + byte);
  };
  const int places[4] = {row * 8 + col, row * 8 + col + 1, row * 8 + col + 64, row * 8 + col + 65};
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[places[i]];
  for (int step = 0; step < steps; ++step) {
    const int64_t at = int64_t{32} * step + lane % 4 * 4;
    const uint32_t in_a[4] = {word(a, row, at), word(a, row + 8, at), word(a, row, at + 16),
                              word(a, row + 8, at + 16)};
    const uint32_t in_b[2] = {word(b, row, at), word(b, row, at + 16)};
    multiply<K>(sums, in_a, in_b);
  }
  for (int i = 0; i < 4; ++i) d[places[i]] = sums[i];
}

}  // namespace

// The CUDA error, 0 for none; -1: no such kind. All addresses are the device's.
extern "C" int multiply_tiles(int kind, const void* a, const void* b, const float* c, float* d,
                              int n_tiles, int steps) {
  using Kernel = void (*)(const uint8_t*, const uint8_t*, const float*, float*, int);
  const Kernel kernels[] = {tiles<Kind::e4m3_e4m3>, tiles<Kind::e5m2_e4m3>, tiles<Kind::e4m3_e5m2>,
                            tiles<Kind::e5m2_e5m2>, tiles<Kind::bf16>,      tiles<Kind::fp16>,
                            tiles<Kind::tf32>};
  if (kind < 0 || kind >= 7) return -1;
  kernels[kind]<<<n_tiles, 32>>>(static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), c,
                                 d, steps);
  const cudaError_t launched = cudaGetLastError();
  return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}
