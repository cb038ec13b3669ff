// Kernels with the bits of a Hopper card's, given the same operands: f32, each operation and each
// sum in the order of src/backends/cuda/kernels, whose functions are those of
// math/exact_functions.h. The reference of Arithmetic::hopper takes them in the place of its own.
#pragma once

#include <vector>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {

// nullptr where the card has none, or the reference's own has its bits.
Kernel card_kernel(const Graph& graph, const Node& node);

// Kernels of types and attributes as card_kernel() takes them; results are f32.
void card_rms_norm(const RefCall& call);
void card_layer_norm(const RefCall& call);
void card_rms_norm_grad(const RefCall& call);
void card_layer_norm_grad(const RefCall& call);
void card_activation(const RefCall& call);
void card_activation_grad(const RefCall& call);
void card_rope(const RefCall& call);
void card_cross_entropy(const RefCall& call);
void card_cross_entropy_grad(const RefCall& call);
void card_global_norm(const RefCall& call);
void card_few_rows(const RefCall& call);  // a GEMM

inline std::vector<float> floats(std::span<const double> x) {
  return {x.begin(), x.end()};
}

// The sum of values of a warp's 32 lanes, of which each lane adds that of lane ^ 16, 8, 4, 2, 1.
template <typename T>
T warp_sum(std::span<const T> lanes) {
  std::vector<T> v(lanes.begin(), lanes.end());
  for (size_t step = v.size() / 2; step > 0; step /= 2) {
    for (size_t lane = 0; lane < step; ++lane) v[lane] += v[lane + step];
  }
  return v[0];
}
inline constexpr size_t kWarp = 32;

// One of each whole warp of a block's threads.
template <typename T>
std::vector<T> warp_sums(std::span<const T> threads) {
  std::vector<T> sums;
  for (size_t first = 0; first < threads.size(); first += kWarp)
    sums.push_back(warp_sum(threads.subspan(first, kWarp)));
  return sums;
}

template <typename T>
T in_order(const std::vector<T>& values) {
  T sum = 0;
  for (const T value : values) sum += value;
  return sum;
}

}  // namespace octet::reference
