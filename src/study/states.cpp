#include "study/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "formats/codec.h"
#include "math/moment.h"

namespace octet {
namespace {

constexpr int kBins = 64;  // of log2 of a range

double direction(float m, float v, double eps) {
  return static_cast<double>(m) / (std::sqrt(static_cast<double>(v)) + eps);
}

// Shares of groups by log2 of their range, and by k.
struct RangeCounts {
  std::array<int64_t, kBins> before{}, after{};
  std::array<int64_t, kMaxK16 + 1> k16{};
  int64_t n = 0;

  void add(std::span<const float> group, Moment moment) {
    AbsRange range;
    for (const float x : group) range = join(range, x);
    if (range.amax < kMinExpansionAmax || !std::isfinite(range.amin)) return;
    const MomentCoding coding{.dtype = Dtype::e4m3, .moment = moment, .expand = true};
    const uint32_t k = moment_meta(coding, range) & 0xFFu;
    const double octaves =
        std::log2(static_cast<double>(range.amax) / static_cast<double>(range.amin));
    const auto bin = [](double x) {
      return static_cast<size_t>(std::clamp(x, 0.0, static_cast<double>(kBins - 1)));
    };
    ++before[bin(octaves)];
    ++after[bin(octaves * k / 16)];
    ++k16[k];
    ++n;
  }
};

// Shares of a moment's elements by the magnitude of their E4M3 code.
struct CodeCounts {
  std::array<int64_t, 128> plain{}, expanded{};
  int64_t n = 0;

  void add(std::span<const float> group, Moment moment) {
    std::vector<uint8_t> codes(group.size());
    for (const bool expand : {false, true}) {
      const MomentCoding coding{
          .dtype = Dtype::e4m3, .moment = moment, .expand = expand, .math = MathMode::fast};
      uint32_t meta = 0;
      encode_moments(coding, group, {}, codes, meta);
      for (const uint8_t code : codes) ++(expand ? expanded : plain)[code & 0x7Fu];
    }
    n += std::ssize(group);
  }
};

class StatesStudy {
 public:
  explicit StatesStudy(const StatesStudyOptions& options) : options_(options) {}

  void add(const StatesOfTensor& tensor) {
    const auto n = std::ssize(tensor.m);
    std::vector<std::vector<float>> m, v;
    for (const StateForm& form : state_forms()) {
      m.push_back(store_and_load(form, Moment::first, options_.group, tensor.m));
      v.push_back(store_and_load(form, Moment::second, options_.group, tensor.v));
    }
    std::vector<double> mse(kStateForms * kStateForms, 0.0);
    for (size_t i = 0; i < tensor.m.size(); ++i) {
      const double exact = direction(tensor.m[i], tensor.v[i], options_.eps);
      for (size_t b = 0; b < kStateForms; ++b) {
        const double root = std::sqrt(static_cast<double>(v[b][i])) + options_.eps;
        for (size_t a = 0; a < kStateForms; ++a) {
          const double d = exact - static_cast<double>(m[a][i]) / root;
          mse[a * kStateForms + b] += d * d;
        }
      }
    }
    for (size_t i = 0; i < mse.size(); ++i) {
      total_[i] += mse[i];
      mse[i] /= static_cast<double>(std::max<int64_t>(n, 1));
    }
    sizes_.push_back(n);
    tensors_.emplace_back(tensor.parameter, std::move(mse));
    n_elems_ += n;
    count(tensor.m, Moment::first, m_, m_codes_);
    count(tensor.v, Moment::second, v_, v_codes_);
  }

  Study finish() const {
    if (n_elems_ == 0) throw Error(ErrorCode::bad_data, "[study] expected moments, got none");
    Study study{.title = "Optimizer states in eight bits", .table = pairs()};
    study.sheets = {tensor_sheet()};
    study.figures = {pair_figure(), tensor_figure(), range_figure(),
                     k_figure(),    code_figure(),   average_figure()};
    return study;
  }

 private:
  void count(std::span<const float> x, Moment moment, RangeCounts& ranges,
             CodeCounts& codes) const {
    const auto group = static_cast<size_t>(options_.group);
    for (size_t i = 0; i < x.size(); i += group) {
      const auto part = x.subspan(i, std::min(group, x.size() - i));
      ranges.add(part, moment);
      codes.add(part, moment);
    }
  }

  double mse(size_t a, size_t b) const {
    return total_[a * kStateForms + b] / static_cast<double>(n_elems_);
  }

  // Error of the mean over all elements, a ratio of sums over tensors (delta method); NaN of one.
  double error(size_t a, size_t b) const {
    const double mean = mse(a, b), n = static_cast<double>(tensors_.size());
    double squares = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const double rest =
          static_cast<double>(sizes_[i]) * (tensors_[i].second[a * kStateForms + b] - mean);
      squares += rest * rest;
    }
    return n < 2 ? NAN : std::sqrt(squares * n / (n - 1)) / static_cast<double>(n_elems_);
  }

  Sheet pairs() const {
    Sheet sheet{.file = "pairs", .columns = {"m \\ v"}};
    for (size_t a = 0; a < kStateForms; ++a) {
      sheet.columns.emplace_back(state_forms()[a].name);
      std::vector<std::string> row = {std::string(state_forms()[a].name)};
      for (size_t b = 0; b < kStateForms; ++b) row.push_back(fmt::format("{:.4g}", mse(a, b)));
      for (size_t b = 0; b < kStateForms; ++b) row.push_back(number_cell("{:.2g}", error(a, b)));
      sheet.rows.push_back(std::move(row));
    }
    for (const StateForm& form : state_forms())
      sheet.columns.push_back(fmt::format("{} +-", form.name));
    return sheet;
  }

  // Dots for each format of m.
  template <typename Value>
  static Figure errors_by_form(Figure figure, std::string_view prefix, size_t n,
                               const Value& value) {
    figure.y_title = "mean square error";
    figure.scale = FigureScale::logarithmic;
    figure.has_dots = true;
    for (size_t a = 0; a < kStateForms; ++a) {
      Series series{.name = fmt::format("{}{}", prefix, state_forms()[a].name)};
      for (size_t i = 0; i < n; ++i) {
        series.x.push_back(static_cast<double>(i));
        series.y.push_back(value(a, i));
      }
      figure.series.push_back(std::move(series));
    }
    return figure;
  }

  Figure pair_figure() const {
    Figure figure =
        errors_by_form({.file = "pairs",
                        .title = "Error of m / (sqrt(v) + eps) by the formats of both",
                        .x_title = "format of v"},
                       "m ", kStateForms, [&](size_t a, size_t b) { return mse(a, b); });
    for (const StateForm& form : state_forms()) figure.x_names.emplace_back(form.name);
    return figure;
  }

  Sheet tensor_sheet() const {
    Sheet sheet{.file = "tensors", .columns = {"parameter"}};
    for (const StateForm& form : state_forms()) {
      sheet.columns.push_back(fmt::format("{0} / {0}", form.name));
    }
    for (const auto& [name, values] : tensors_) {
      std::vector<std::string> row = {name};
      for (size_t a = 0; a < kStateForms; ++a) {
        row.push_back(fmt::format("{:.6g}", values[a * kStateForms + a]));
      }
      sheet.rows.push_back(std::move(row));
    }
    return sheet;
  }

  Figure tensor_figure() const {
    Figure figure = errors_by_form({.file = "by_tensor",
                                    .title = "Error by tensor, both moments in one format",
                                    .x_title = "parameter"},
                                   "", tensors_.size(), [&](size_t a, size_t i) {
                                     return tensors_[i].second[a * kStateForms + a];
                                   });
    for (const auto& [name, values] : tensors_) figure.x_names.push_back(name);
    return figure;
  }

  template <size_t N>
  static Series shares(std::string name, const std::array<int64_t, N>& counts, int64_t n,
                       double step) {
    Series series{.name = std::move(name)};
    for (size_t i = 0; i < N; ++i) {
      series.x.push_back(static_cast<double>(i) * step);
      series.y.push_back(100.0 * static_cast<double>(counts[i]) /
                         static_cast<double>(std::max<int64_t>(n, 1)));
    }
    return series;
  }

  Figure range_figure() const {
    return {
        .file = "ranges",
        .title = "Dynamic range of groups before and after expansion; E4M3 holds 17.8",
        .x_title = "log2 (largest / smallest nonzero magnitude)",
        .y_title = "% of groups",
        .from_zero = true,
        .series = {shares("m before", m_.before, m_.n, 1), shares("m after", m_.after, m_.n, 1),
                   shares("v before", v_.before, v_.n, 1), shares("v after", v_.after, v_.n, 1)}};
  }

  Figure k_figure() const {
    return {.file = "k",
            .title = "Exponent k that expansion chooses for E4M3",
            .x_title = "k",
            .y_title = "% of groups",
            .from_zero = true,
            .series = {shares("m", m_.k16, m_.n, 1.0 / 16), shares("v", v_.k16, v_.n, 1.0 / 16)}};
  }

  // Zero and NaN (code 127) are told, too.
  Figure code_figure() const {
    return {.file = "codes",
            .title = "E4M3 codes that groups use before and after expansion",
            .x_title = "magnitude of the code; 126 is 448, 1 is 2^-9",
            .y_title = "% of elements",
            .from_zero = true,
            .series = {shares("m before", m_codes_.plain, m_codes_.n, 1),
                       shares("m after", m_codes_.expanded, m_codes_.n, 1),
                       shares("v before", v_codes_.plain, v_codes_.n, 1),
                       shares("v after", v_codes_.expanded, v_codes_.n, 1)}};
  }

  Figure average_figure() const {
    Figure figure{.file = "average",
                  .title = "Bias of a moving average kept in E4M3+X",
                  .x_title = "step",
                  .y_title = "% of v"};
    for (const float beta2 : {0.95f, 0.99f, 0.999f}) {
      for (const bool stochastic : {false, true}) {
        MomentCoding coding{.dtype = Dtype::e4m3, .moment = Moment::second, .expand = true};
        coding.stochastic = stochastic;
        coding.math = MathMode::fast;
        Series series{.name =
                          fmt::format("b2 {:g}, {}", beta2, stochastic ? "stochastic" : "nearest")};
        for (int part = 1; part <= 6; ++part) {
          const int steps = options_.average_steps * part / 6;
          series.x.push_back(steps);
          series.y.push_back(100 * bias_of_average(coding, beta2, steps));
        }
        figure.series.push_back(std::move(series));
      }
    }
    figure.has_dots = true;
    return figure;
  }

  const StatesStudyOptions& options_;
  std::vector<double> total_ = std::vector<double>(kStateForms * kStateForms, 0.0);
  std::vector<std::pair<std::string, std::vector<double>>> tensors_;
  std::vector<int64_t> sizes_;  // elements of each
  int64_t n_elems_ = 0;
  RangeCounts m_, v_;
  CodeCounts m_codes_, v_codes_;
};

}  // namespace

Study study_states(const std::function<std::optional<StatesOfTensor>()>& next,
                   const StatesStudyOptions& options) {
  StatesStudy study(options);
  while (const auto tensor = next()) study.add(*tensor);
  return study.finish();
}

double bias_of_average(const MomentCoding& coding, float beta2, int steps) {
  constexpr size_t kGroup = 128, kGroups = 4;
  double sum = 0;
  for (uint32_t group = 0; group < kGroups; ++group) {
    const RandomStream scales{.name = name_hash("bias"), .seed = group};
    std::vector<float> v(kGroup), exact(kGroup), scale(kGroup);
    std::vector<uint8_t> q(kGroup);
    uint32_t meta = 0;
    for (size_t i = 0; i < kGroup; ++i) scale[i] = 1e-3f * std::exp(0.5f * scales.normal(i));
    for (int t = 1; t <= steps; ++t) {
      const auto step = static_cast<uint32_t>(t);
      const RandomStream draw{.name = 31, .seed = group, .step = step};
      for (size_t i = 0; i < kGroup; ++i) {
        const float g = scale[i] * draw.normal(i);
        v[i] = beta2 * v[i] + ((1 - beta2) * g) * g;
        exact[i] = beta2 * exact[i] + ((1 - beta2) * g) * g;
      }
      const RandomStream random{.name = name_hash("rounding"), .seed = group, .step = step};
      encode_moments(coding, v, {.random = random}, q, meta);
      decode_moments(coding, meta, q, v);
    }
    for (size_t i = 0; i < kGroup; ++i) {
      sum += static_cast<double>(v[i]) / static_cast<double>(exact[i]) - 1;
    }
  }
  return sum / static_cast<double>(kGroup * kGroups);
}

}  // namespace octet
