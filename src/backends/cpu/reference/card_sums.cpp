// Products with few rows.
#include <cmath>

#include "backends/cpu/reference/card.h"

namespace octet::reference {
// 128 threads, each sixteen bytes of a row of b at a time, then by warp, then over the warps.
void card_few_rows(const RefCall& call) {
  constexpr size_t kRowThreads = 128;
  const RefTensor &a = call.in[Gemm::a], &b = call.in[Gemm::b], &y = call.out[0];
  const size_t rows = dim(y, 0), cols = dim(y, 1), depth = a.data.size() / rows;
  const size_t piece = size(16 / bytes_of(b.type.dtype, 1));
  const auto scale_of = [&](size_t slot) {
    const auto scale = optional(call.in, slot);
    return scale.empty() ? 1.0f : static_cast<float>(scale[0]);
  };
  const float scale = scale_of(Gemm::scale_a) * scale_of(Gemm::scale_b);
  const auto addend = optional(call.in, Gemm::c);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) {
      std::vector<float> threads(kRowThreads);
      for (size_t k = 0; k < depth; ++k) {
        float& sum = threads[k / piece % kRowThreads];
        sum = std::fma(static_cast<float>(a.data[i * depth + k]),
                       static_cast<float>(b.data[j * depth + k]), sum);
      }
      float value = in_order(warp_sums<float>(threads)) * scale;
      if (!addend.empty()) value += static_cast<float>(addend[i * cols + j]);
      y.data[i * cols + j] = value;
    }
  }
}

}  // namespace octet::reference
