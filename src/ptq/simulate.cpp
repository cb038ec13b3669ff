#include "ptq/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/integer.h"
#include "formats/full_int8.h"
#include "infer/matrix_quantizer.h"

namespace octet {
namespace {

constexpr int64_t kPiece = 1 << 14;  // elements

// f(first, n) for parts of n elements, on the pool's threads.
template <typename F>
void in_pieces(int64_t n, ThreadPool& pool, F&& f) {
  pool.run(ceil_div(n, kPiece),
           [&](int64_t piece, int) { f(piece * kPiece, std::min(kPiece, n - piece * kPiece)); });
}

}  // namespace

MatrixShape QuantizedWeight::grid() const {
  return {ceil_div(shape.rows, block.rows), ceil_div(shape.cols, block.cols)};
}

double decibels(double signal, double noise) {
  if (noise <= 0) return kMostDecibels;
  return signal > 0 ? std::clamp(10 * std::log10(signal / noise), -kMostDecibels, kMostDecibels)
                    : -kMostDecibels;
}

double QuantizationError::snr_db() const {
  return decibels(signal, mse);
}

float scale_of(const WeightQuantizer& q, float amax) {
  if (q.scale) return *q.scale;
  Quantizer rule;
  rule.format = q.dtype;
  rule.scale_type = q.scale_type;
  rule.rule = q.power ? ScaleRule::power_ceil : ScaleRule::linear;
  rule.amax_target = q.target;
  return scale_from_amax(rule, amax);
}

QuantizedWeight quantize_weight(const WeightQuantizer& quantizer, const MatrixShape& shape,
                                std::span<const float> w, ThreadPool& pool) {
  CHECK(std::ssize(w) == shape.n_elems() && shape.n_elems() > 0);
  QuantizedWeight result{.dtype = quantizer.dtype,
                         .shape = shape,
                         .block = {std::min(quantizer.block.rows, shape.rows),
                                   std::min(quantizer.block.cols, shape.cols)},
                         .scale_type = quantizer.scale_type};
  result.data.resize(w.size());
  std::vector<Amax> largest(static_cast<size_t>(result.grid().n_elems()));
  for_each_scale_run(result.block, shape.cols, 0, std::ssize(w),
                     [&](size_t at, size_t begin, size_t end) {
                       largest[at] = join(largest[at], amax(w.subspan(begin, end - begin)));
                     });
  for (const Amax& block : largest) result.scales.push_back(scale_of(quantizer, block.value));
  MatrixQuantizer scaled({.format = quantizer.dtype}, shape, result.block);
  scaled.set_scales(result.scales);
  const auto cols = static_cast<size_t>(shape.cols);
  pool.run(shape.rows, [&](int64_t r, int) {
    const size_t at = static_cast<size_t>(r) * cols;
    scaled.encode(r * shape.cols, w.subspan(at, cols), std::span(result.data).subspan(at, cols));
  });
  return result;
}

std::vector<float> dequantized(const QuantizedWeight& weight) {
  std::vector<float> values(weight.data.size());
  visit_format(weight.dtype, [&]<Dtype D>() {
    for_each_scale_run(weight.block, weight.shape.cols, 0, weight.shape.n_elems(),
                       [&](size_t at, size_t begin, size_t end) {
                         for (size_t i = begin; i < end; ++i)
                           values[i] = decode<D>(weight.data[i]) * weight.scales[at];
                       });
  });
  return values;
}

std::vector<float> difference(std::span<const float> w, const QuantizedWeight& weight,
                              ThreadPool& pool) {
  CHECK(weight.scales.size() == 1);
  std::vector<float> d(w.size());
  visit_format(weight.dtype, [&]<Dtype D>() {
    std::array<float, 256> values;  // by code
    for (uint32_t code = 0; code < values.size(); ++code)
      values[code] = decode<D>(code) * weight.scales.front();
    in_pieces(std::ssize(w), pool, [&](int64_t first, int64_t n) {
      for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(first + n); ++i)
        d[i] = w[i] - values[weight.data[i]];
    });
  });
  return d;
}

std::vector<float> simulated(const ActivationQuantizer& how, std::span<const float> x, int64_t cols,
                             ThreadPool& pool) {
  std::vector<float> y(x.size());
  Quantizer quantizer;
  quantizer.format = how.dtype;
  quantizer.amax_target = static_cast<float>(how.target);
  if (how.group == 0 || how.scale) {
    const float scale = how.scale ? *how.scale : scale_from_amax(quantizer, amax(x).value);
    const float inv_scale = 1.0f / scale;
    const bool is_full = how.scale && how.dtype == Dtype::int8;
    visit_format(how.dtype, [&]<Dtype D>() {
      in_pieces(std::ssize(x), pool, [&](int64_t first, int64_t n) {
        for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(first + n); ++i) {
          const float q = x[i] * inv_scale;
          y[i] = decode<D>(is_full ? encode_full_int8(q) : encode<D>(q)) * scale;
        }
      });
    });
    return y;
  }
  quantizer.granularity = {.kind = Granularity::Kind::row};
  if (how.group < cols) {
    quantizer.granularity = {.kind = Granularity::Kind::group, .size = how.group};
  }
  quantizer.scale_type = how.power ? Dtype::e8m0 : Dtype::f32;
  quantizer.rule = how.power ? ScaleRule::power_ceil : ScaleRule::linear;
  const auto n_scales =
      static_cast<size_t>(scale_shape({1, cols}, quantizer.granularity).n_elems());
  pool.run(std::ssize(x) / cols, [&](int64_t r, int) {
    const auto at = static_cast<size_t>(r * cols), n = static_cast<size_t>(cols);
    std::vector<uint8_t> q(n);
    std::vector<float> scales(n_scales);
    octet::quantize(quantizer, {1, cols}, x.subspan(at, n), q, scales);
    octet::dequantize(quantizer, {1, cols}, q, scales, std::span(y).subspan(at, n));
  });
  return y;
}

QuantizationError error_of(std::span<const float> x, std::span<const float> y) {
  QuantizationError error;
  int64_t n_flushed = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    error.mse += d * d;
    error.signal += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    n_flushed += x[i] != 0 && y[i] == 0 ? 1 : 0;
  }
  const auto n = static_cast<double>(std::max<size_t>(x.size(), 1));
  error.mse /= n;
  error.signal /= n;
  error.flushed = static_cast<double>(n_flushed) / n;
  return error;
}

void add_clipping(Dtype dtype, float scale, std::span<const float> x, QuantizationError& error) {
  const float limit = max_finite(dtype) * scale;
  const auto n = std::ranges::count_if(x, [&](float value) { return std::abs(value) > limit; });
  error.clipped = static_cast<double>(n) / static_cast<double>(std::max<size_t>(x.size(), 1));
}

void ErrorSum::add(const QuantizationError& error, int64_t n_elems) {
  const auto n = static_cast<double>(n_elems);
  sum_.mse += error.mse * n, sum_.signal += error.signal * n;
  sum_.clipped += error.clipped * n, sum_.flushed += error.flushed * n;
  n_elems_ += n;
}

QuantizationError ErrorSum::mean() const {
  const double n = std::max(n_elems_, 1.0);
  return {sum_.mse / n, sum_.signal / n, sum_.clipped / n, sum_.flushed / n};
}

}  // namespace octet
