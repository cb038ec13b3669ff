// The norm of gradients, and products with few rows.
#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/card.h"

namespace octet::reference {
namespace {

constexpr size_t kSumThreads = 256, kEachSquares = 8;

// The squares of eight elements: in f32 where no square leaves its range.
double eight_squares(const float* x) {
  float sum = 0;
  for (size_t i = 0; i < kEachSquares; ++i) sum = std::fma(x[i], x[i], sum);
  if (sum > 1e-35f && sum < 1e36f) return sum;
  double exact = 0;
  for (size_t i = 0; i < kEachSquares; ++i) exact = std::fma(double{x[i]}, double{x[i]}, exact);
  return exact;
}
double chunk_squares(std::span<const float> x) {
  std::vector<double> threads(kSumThreads);
  const size_t n_eights = x.size() / kEachSquares;
  for (size_t i = 0; i < n_eights; ++i)
    threads[i % kSumThreads] += eight_squares(&x[i * kEachSquares]);
  for (size_t i = n_eights * kEachSquares; i < x.size(); ++i) {
    double& sum = threads[(i - n_eights * kEachSquares) % kSumThreads];
    sum = std::fma(double{x[i]}, double{x[i]}, sum);
  }
  return in_order(warp_sums<double>(threads));
}

}  // namespace

void card_global_norm(const RefCall& call) {
  constexpr size_t kNormChunk = 1 << 15;
  std::vector<double> chunks, threads(1024);
  for (size_t i = GlobalNorm::gradient; i < call.in.size(); ++i) {
    const std::vector<float> x = floats(call.in[i].data);
    for (size_t first = 0; first < x.size(); first += kNormChunk)
      chunks.push_back(
          chunk_squares(std::span(x).subspan(first, std::min(kNormChunk, x.size() - first))));
  }
  for (size_t i = 0; i < chunks.size(); ++i) threads[i % threads.size()] += chunks[i];
  const double squares = in_order(warp_sums<double>(threads));
  const double norm = std::sqrt(squares), limit = call.in[GlobalNorm::clip].data[0],
               ratio = limit / (norm + 1e-6);
  call.out[GlobalNorm::norm].data[0] = norm;
  call.out[GlobalNorm::grad_scale].data[0] = limit > 0 && ratio < 1 ? ratio : 1;
  call.out[GlobalNorm::found_nonfinite].data[0] = std::isfinite(squares) ? 0 : 1;
}

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
