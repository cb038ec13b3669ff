#include "study/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/philox.h"
#include "formats/codec.h"

namespace octet {
namespace {

constexpr Dtype kElements[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::int8,
                               Dtype::de8s, Dtype::fp16, Dtype::bf16};
constexpr int kMin = -26, kMax = 18;  // exponents that are drawn

// By exponent: log2 of how many values the binade [2^e, 2^(e+1)) has, and one for the leading bit.
std::map<int, double> significand_bits(Dtype dtype) {
  std::map<int, int> n_values;
  const int bits = format_bits(find_format(dtype));
  for (uint32_t code = 0; code < 1u << bits; ++code) {
    const float x = decode(dtype, code);
    if (x > 0 && std::isfinite(x)) ++n_values[unpack(x).exponent];
  }
  std::map<int, double> result;
  for (const auto& [exponent, n] : n_values) result[exponent] = 1 + std::log2(n);
  return result;
}

// The error of the signal to noise of all normals: over four parts of them. NaN where it is none.
double error_of_draw(Dtype dtype, double log2_sigma, std::span<const float> normals) {
  constexpr size_t kParts = 4;
  double sum = 0, squares = 0;
  for (size_t i = 0; i < kParts; ++i) {
    const size_t n = normals.size() / kParts;
    const double db = snr_of_normal(dtype, log2_sigma, normals.subspan(i * n, n));
    sum += db, squares += db * db;
  }
  const double rest = squares - sum * sum / kParts;  // NaN where a part is exact, or is none
  return std::sqrt((rest < 0 ? 0 : rest) / (kParts - 1) / kParts);
}

}  // namespace

std::vector<float> standard_normals(int64_t n) {
  std::vector<float> normals(static_cast<size_t>(n));
  RandomStream{.name = name_hash("snr"), .seed = 1}.normals(normals);
  return normals;
}

double snr_of_normal(Dtype dtype, double log2_sigma, std::span<const float> normals) {
  const auto sigma = static_cast<float>(std::exp2(log2_sigma));
  double signal = 0, noise = 0;
  visit_format(dtype, [&]<Dtype D>() {
    for (const float normal : normals) {
      const float x = sigma * normal;
      const double error = static_cast<double>(decode<D>(encode<D>(x))) - static_cast<double>(x);
      signal += static_cast<double>(x) * static_cast<double>(x);
      noise += error * error;
    }
  });
  return snr_db(signal, noise);
}

Study study_formats(int64_t n_samples) {
  Figure bits{.file = "significand_bits",
              .title = "Significand bits over the exponent",
              .x_title = "exponent of the value (log2)",
              .y_title = "bits, the leading one counted",
              .from_zero = true};
  Figure snr{.file = "snr",
             .title = "Signal to noise of N(0, sigma^2) without a scale",
             .x_title = "log2 sigma",
             .y_title = "dB",
             .from_zero = true};
  Study study{.title = "Number formats",
              .table = {.file = "formats",
                        .columns = {"format", "max_finite", "min_positive", "best_snr_db",
                                    "best_snr_error_db", "at_log2_sigma", "octaves_above_20_db"}}};
  const std::vector<float> normals = standard_normals(n_samples);
  for (const Dtype dtype : kElements) {
    const std::string name(dtype_name(dtype));
    Series of_bits{.name = name}, of_snr{.name = name};
    for (const auto& [exponent, n] : significand_bits(dtype)) {
      if (exponent < kMin || exponent > kMax) continue;
      of_bits.x.push_back(exponent);
      of_bits.y.push_back(n);
    }
    double best = -INFINITY, best_at = 0;
    int octaves = 0;
    for (int e = kMin; e <= kMax; ++e) {
      const double db = snr_of_normal(dtype, e, normals);
      of_snr.x.push_back(e);
      of_snr.y.push_back(db);
      octaves += db >= 20 ? 1 : 0;
      if (db > best) best_at = e;
      best = std::max(best, db);
    }
    const bool is_high_precision = bytes_of(dtype, 1) > 1;  // drawn, they would hide what is below
    if (!is_high_precision) snr.series.push_back(of_snr);
    if (dtype != Dtype::bf16) bits.series.push_back(of_bits);
    study.table.rows.push_back(
        {name, fmt::format("{:g}", max_finite(dtype)), fmt::format("{:g}", min_positive(dtype)),
         number_cell("{:.2f}", best), number_cell("{:.2f}", error_of_draw(dtype, best_at, normals)),
         fmt::format("{:g}", best_at), fmt::to_string(octaves)});
  }
  study.figures = {bits, snr};
  return study;
}

}  // namespace octet
