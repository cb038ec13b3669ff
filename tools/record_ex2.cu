// The table of src/math/ex2.h, asked of a card:
//
//   nvcc -O2 -std=c++20 -arch=sm_90a -Isrc -o record_ex2 tools/record_ex2.cu && ./record_ex2
//
// Prints the rows of s >= 0 and s < 0 and how many results from -126 up to 128 are not what the
// header says; exit status 1 if there are any.
#include <cstdio>
#include <vector>

#include "math/ex2.h"

namespace {

constexpr int kSteps = 1024, kLeast = -126 * kSteps, kCount = 254 * kSteps;

__global__ void powers(float* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  out[i] = octet::ex2_of_card(static_cast<float>(kLeast + i) / kSteps);
}

}  // namespace

int main() {
  float* results = nullptr;
  if (cudaMallocManaged(&results, kCount * sizeof(float)) != cudaSuccess) return 2;
  powers<<<kCount / 256, 256>>>(results);
  if (cudaDeviceSynchronize() != cudaSuccess) return 2;
  for (const int first : {0, -kSteps}) {
    for (int i = 0; i < kSteps; ++i) {
      const auto nearest =
          static_cast<float>(octet::exp2_exact(static_cast<double>(first + i) / kSteps));
      const auto units = octet::bits_of(results[first + i - kLeast]) - octet::bits_of(nearest);
      std::printf("%d%s", static_cast<int>(units) + 2, i % 64 == 63 ? "\n" : "");
    }
  }
  int others = 0;
  for (int i = 0; i < kCount; ++i) {
    const float expected = octet::ex2_of_card(static_cast<float>(kLeast + i) / kSteps);
    others += octet::bits_of(results[i]) != octet::bits_of(expected) ? 1 : 0;
  }
  std::printf("%d of %d results differ from math/ex2.h\n", others, kCount);
  return others == 0 ? 0 : 1;
}
