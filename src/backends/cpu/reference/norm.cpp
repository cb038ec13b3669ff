#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

double weight(std::span<const double> w, size_t c) {
  return w.empty() ? 1 : w[c];
}

// dx = rstd * (h - [mean h] - n * mean(h * n)) [+ c] with h = dy * w and n the normalized x; dw +=
// dy * n, db += dy.
struct NormRow {
  std::span<const double> dy, x, w, c;
  double mean, rstd;
  bool centred;
};

void norm_row_grad(const NormRow& in, std::span<double> dx, std::span<double> dw) {
  const auto width = static_cast<double>(in.x.size());
  double sum_h = 0, sum_hn = 0;
  for (size_t c = 0; c < in.x.size(); ++c) {
    const double h = in.dy[c] * weight(in.w, c);
    sum_h += h;
    sum_hn += h * (in.x[c] - in.mean) * in.rstd;
  }
  for (size_t c = 0; c < in.x.size(); ++c) {
    const double n = (in.x[c] - in.mean) * in.rstd;
    const double h = in.dy[c] * weight(in.w, c);
    dx[c] = in.rstd * (h - (in.centred ? sum_h / width : 0) - n * sum_hn / width);
    if (!in.c.empty()) dx[c] += in.c[c];
    if (!dw.empty()) dw[c] += in.dy[c] * n;
  }
}

// Row r of an operand that may be absent.
std::span<const double> optional_row(const RefCall& call, size_t operand, size_t r) {
  return optional(call.in, operand).empty() ? std::span<const double>() : row(call.in[operand], r);
}

}  // namespace

void unquantized::rms_norm(const RefCall& call) {
  const double eps = std::get<NormAttrs>(call.attrs).eps;
  const auto w = optional(call.in, 1), known = optional(call.in, RmsNorm::known_rstd);
  for (size_t r = 0; r < dim(call.in[0], 0); ++r) {
    const auto x = row(call.in[0], r), y = row(call.out[0], r);
    double sum = 0;
    for (const double e : x) sum += e * e;
    const double rstd =
        known.empty() ? 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps) : known[r];
    for (size_t c = 0; c < x.size(); ++c) y[c] = x[c] * rstd * weight(w, c);
    if (known.empty()) call.out[1].data[r] = rstd;
  }
}

void unquantized::rms_norm_grad(const RefCall& call) {
  const bool weighted = !optional(call.in, 3).empty();
  const auto dw = weighted ? call.out[1].data : std::span<double>();
  std::fill(dw.begin(), dw.end(), 0.0);
  for (size_t r = 0; r < dim(call.in[1], 0); ++r) {
    norm_row_grad({.dy = row(call.in[0], r),
                   .x = row(call.in[1], r),
                   .w = optional(call.in, 3),
                   .c = optional_row(call, 5, r),
                   .mean = 0,
                   .rstd = call.in[2].data[r],
                   .centred = false},
                  row(call.out[0], r), dw);
  }
  if (std::get<NormAttrs>(call.attrs).amax) amax_of_results(call, 1);
}

void unquantized::layer_norm(const RefCall& call) {
  const double eps = std::get<NormAttrs>(call.attrs).eps;
  const auto w = optional(call.in, 1), b = optional(call.in, 2);
  const auto known_mean = optional(call.in, LayerNorm::known_mean),
             known_rstd = optional(call.in, LayerNorm::known_rstd);
  for (size_t r = 0; r < dim(call.in[0], 0); ++r) {
    const auto x = row(call.in[0], r), y = row(call.out[0], r);
    const auto width = static_cast<double>(x.size());
    double sum = 0, squares = 0;
    for (const double e : x) sum += e;
    const double mean = known_mean.empty() ? sum / width : known_mean[r];
    for (const double e : x) squares += (e - mean) * (e - mean);
    const double rstd = known_rstd.empty() ? 1 / std::sqrt(squares / width + eps) : known_rstd[r];
    for (size_t c = 0; c < x.size(); ++c) {
      y[c] = (x[c] - mean) * rstd * weight(w, c) + (b.empty() ? 0 : b[c]);
    }
    if (!known_rstd.empty()) continue;
    call.out[1].data[r] = mean;
    call.out[2].data[r] = rstd;
  }
}

void unquantized::layer_norm_grad(const RefCall& call) {
  const bool weighted = !optional(call.in, 4).empty();
  const auto dw = weighted ? call.out[1].data : std::span<double>();
  const auto db = weighted ? call.out[2].data : std::span<double>();
  std::fill(dw.begin(), dw.end(), 0.0);
  std::fill(db.begin(), db.end(), 0.0);
  for (size_t r = 0; r < dim(call.in[1], 0); ++r) {
    const auto dy = row(call.in[0], r);
    norm_row_grad({.dy = dy,
                   .x = row(call.in[1], r),
                   .w = optional(call.in, 4),
                   .c = optional_row(call, 6, r),
                   .mean = call.in[2].data[r],
                   .rstd = call.in[3].data[r],
                   .centred = true},
                  row(call.out[0], r), dw);
    for (size_t c = 0; c < db.size(); ++c) db[c] += dy[c];
  }
  if (std::get<NormAttrs>(call.attrs).amax) amax_of_results(call, 1);
}

}  // namespace octet::reference
