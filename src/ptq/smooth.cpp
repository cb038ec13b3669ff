// SmoothQuant: what is divided out of the channels of a norm's result is multiplied into the
// weights that read it (Xiao et al. 2023): s_j = max |x_j|^alpha / max |w_j|^(1 - alpha).
#include <algorithm>
#include <cmath>

#include "ptq/products.h"
#include "ptq/site.h"

namespace octet {
namespace {

constexpr int kAlphaSteps = 10;  // alpha 0, 0.1, ..., 1
constexpr float kMinDivisor = 1e-5f, kMaxDivisor = 1e5f;

// The largest magnitudes by column.
std::vector<float> column_maxima(std::span<const float> x, int64_t cols) {
  std::vector<float> largest(static_cast<size_t>(cols), 0.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    float& column = largest[i % static_cast<size_t>(cols)];
    column = std::max(column, std::abs(x[i]));
  }
  return largest;
}

void join_maxima(std::vector<float>& all, const std::vector<float>& more) {
  all.resize(more.size(), 0.0f);
  for (size_t i = 0; i < all.size(); ++i) all[i] = std::max(all[i], more[i]);
}

std::vector<float> divisors(const std::vector<float>& x, const std::vector<float>& w,
                            double alpha) {
  std::vector<float> result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double s =
        std::pow(static_cast<double>(x[i]), alpha) / std::pow(static_cast<double>(w[i]), 1 - alpha);
    const bool is_used = x[i] > 0 && w[i] > 0;
    result.push_back(is_used ? std::clamp(static_cast<float>(s), kMinDivisor, kMaxDivisor) : 1.0f);
  }
  return result;
}

std::vector<float> divided(std::span<const float> x, std::span<const float> divisor) {
  std::vector<float> result(x.begin(), x.end());
  for (size_t i = 0; i < result.size(); ++i) result[i] /= divisor[i % divisor.size()];
  return result;
}

std::vector<float> multiplied(std::span<const float> w, std::span<const float> factor) {
  std::vector<float> result(w.begin(), w.end());
  for (size_t i = 0; i < result.size(); ++i) result[i] *= factor[i % factor.size()];
  return result;
}

}  // namespace

// The errors of all the site's linears together, relative to their outputs.
double SiteQuantizer::smoothed_error(const SiteInputs& inputs,
                                     std::span<const float> divisor) const {
  ThreadPool& pool = *backend_.pool;
  std::vector<std::vector<float>> batches;
  std::vector<std::span<float>> spans;
  for (const auto& x : inputs.x) batches.push_back(divided(x, divisor));
  for (auto& x : batches) spans.emplace_back(x);
  const auto input = input_quantizer(spans);
  if (input) {
    for (auto& x : batches) x = simulated(*input, x, inputs.n_cols, pool);
  }
  double total = 0;
  for (size_t i = 0; i < inputs.weights.size(); ++i) {
    const std::vector<float> w = multiplied(inputs.weights[i], divisor);
    const MatrixShape shape{inputs.site.linears[i].n_out, inputs.n_cols};
    const std::vector<float> q_w =
        dequantized(quantize_weight(weight_quantizer(shape), shape, w, pool));
    OutputError error({inputs.rows_of_batch(), shape.cols, shape.rows}, inputs.weights[i], q_w,
                      backend_);
    for (size_t b = 0; b < batches.size(); ++b) error.add(inputs.x[b], batches[b]);
    total += error.error() / std::max(error.signal(), 1e-300);
  }
  return total;
}

std::optional<double> SiteQuantizer::find_alpha(const SiteInputs& inputs,
                                                std::vector<float>& divisor) const {
  if (inputs.norm_weight.empty()) return std::nullopt;
  std::vector<float> of_x, of_w;
  for (const auto& x : inputs.x) join_maxima(of_x, column_maxima(x, inputs.n_cols));
  for (const auto& w : inputs.weights) join_maxima(of_w, column_maxima(w, inputs.n_cols));
  const std::vector<float> ones(of_x.size(), 1.0f);
  std::optional<double> best;
  double least = smoothed_error(inputs, ones);
  for (int step = 0; step <= kAlphaSteps; ++step) {
    const double alpha = static_cast<double>(step) / kAlphaSteps;
    std::vector<float> candidate = divisors(of_x, of_w, alpha);
    const double error = smoothed_error(inputs, candidate);
    if (!(error < least)) continue;
    least = error;
    best = alpha;
    divisor = std::move(candidate);
  }
  return best;
}

// The norm's parameters as they will be stored decide what the divisor is exactly.
void SiteQuantizer::apply_divisor(SiteInputs& inputs, std::vector<float>& divisor) {
  std::vector<float>& norm = inputs.norm_weight;
  const std::vector<float> before = norm;
  norm = divided(norm, divisor);
  inputs.round_norm(norm);
  for (size_t i = 0; i < divisor.size(); ++i) {
    if (norm[i] != 0 && before[i] != 0) divisor[i] = before[i] / norm[i];
  }
  if (!inputs.norm_bias.empty()) {
    inputs.norm_bias = divided(inputs.norm_bias, divisor);
    inputs.round_norm(inputs.norm_bias);
  }
  for (auto& w : inputs.weights) w = multiplied(w, divisor);
}

}  // namespace octet
