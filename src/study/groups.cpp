#include "study/groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "formats/arrays.h"
#include "ir/op_def.h"
#include "ptq/simulate.h"

namespace octet {
namespace {

struct Scheme {
  std::string_view name;
  Dtype dtype;
  std::string_view granularity;
  bool is_mx = false;
};
constexpr Scheme kTensorSchemes[] = {
    {"e4m3", Dtype::e4m3, "tensor"},          {"e5m2", Dtype::e5m2, "tensor"},
    {"hif8", Dtype::hif8, "tensor"},          {"int8", Dtype::int8, "tensor"},
    {"int8 by row", Dtype::int8, "row"},      {"mxfp8", Dtype::e4m3, "1x32", true},
    {"e4m3 128x128", Dtype::e4m3, "128x128"}, {"e4m3 1x128", Dtype::e4m3, "1x128"}};
constexpr std::string_view kGroupings[] = {"tensor", "row", "1x256", "16x16",
                                           "1x64",   "8x8", "1x16",  "4x4"};
struct EqualSizes {
  std::string_view group, block;
};
constexpr EqualSizes kEqualSizes[] = {{"1x256", "16x16"}, {"1x64", "8x8"}, {"1x16", "4x4"}};

// Scales in f32, so that the grouping alone differs.
Quantizer quantizer_of(Dtype dtype, std::string_view granularity) {
  Quantizer q = linear_quantizer(dtype, granularity_from_name(granularity));
  q.scale_type = Dtype::f32;
  return q;
}

// "3.input" of "input_layernorm" in layer 3.
std::string norm_name(const Node& node) {
  std::string name = node.tag.origin;
  for (const std::string_view suffix : {"_layernorm", "layernorm"}) {
    const bool is_longer = name.ends_with(suffix) && name.size() > suffix.size();
    if (is_longer) name.erase(name.size() - suffix.size());
  }
  if (node.tag.layer < 0) return name;
  return node.tag.layer_name.empty() ? fmt::format("{}.{}", node.tag.layer, name)
                                     : node.tag.layer_name + "." + name;
}

// Groups of a row's length or more are rows.
bool is_narrower(std::string_view grouping, int64_t cols) {
  const Granularity granularity = granularity_from_name(grouping);
  return granularity.kind != Granularity::Kind::group || granularity.size < cols;
}

// Everything but the last axis is rows.
MatrixShape matrix_of(const StoredTensor& tensor, size_t n) {
  const int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  return {static_cast<int64_t>(n) / std::max<int64_t>(cols, 1), cols};
}

struct Magnitudes {
  float largest = 0, smallest = INFINITY;  // but of 0
  bool is_finite = true;
};
Magnitudes magnitudes_of(std::span<const float> values) {
  Magnitudes of;
  for (const float value : values) {
    of.is_finite = of.is_finite && std::isfinite(value);
    of.largest = std::max(of.largest, std::abs(value));
    if (value != 0) of.smallest = std::min(of.smallest, std::abs(value));
  }
  return of;
}

// The formats that are within two standard errors of the best; where some are exact, these.
std::string best_of(const std::vector<SnrAndDraw>& of_schemes) {
  const auto by_mean = [](const SnrAndDraw& a, const SnrAndDraw& b) { return a.mean < b.mean; };
  const SnrAndDraw best = *std::ranges::max_element(of_schemes, by_mean);
  std::string names;
  for (size_t i = 0; i < of_schemes.size(); ++i) {
    const double error = std::hypot(of_schemes[i].error, best.error);
    const bool is_less = std::isfinite(best.mean) ? of_schemes[i].mean < best.mean - 2 * error
                                                  : of_schemes[i].mean != best.mean;
    if (is_less) continue;
    names += (names.empty() ? "" : ", ") + std::string(kTensorSchemes[i].name);
  }
  return names;
}

// The mean of values and its standard error.
SnrAndDraw mean_and_error(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (n - 1) / n)};
}

}  // namespace

SnrByScale snr_by_scale(const Quantizer& quantizer, const MatrixShape& shape,
                        std::span<const float> x) {
  const bool is_integer = quantizer.format == Dtype::int8;
  SnrByScale snr;
  for (size_t i = 0; i < snr.size(); ++i) {
    Quantizer phase = quantizer;
    const auto k = static_cast<float>(i);
    phase.amax_target *= is_integer ? 1 - k / 128 : std::exp2(-k / static_cast<float>(snr.size()));
    snr[i] = snr_of(phase, shape, x);
  }
  return snr;
}

SnrAndDraw over_scales(const SnrByScale& snr) {
  return mean_and_error(snr);
}

SnrAndDraw snr_over_scales(const Quantizer& quantizer, const MatrixShape& shape,
                           std::span<const float> x) {
  return over_scales(snr_by_scale(quantizer, shape, x));
}

SnrAndDraw difference_over_scales(const SnrByScale& a, const SnrByScale& b) {
  SnrByScale difference;
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return over_scales(difference);
}

PairedSnr paired_snr(std::string name, std::string baseline, std::span<const SnrAndDraw> tensors) {
  std::vector<double> means;
  for (const SnrAndDraw& tensor : tensors) means.push_back(tensor.mean);
  const auto [mean, error] = mean_and_error(means);
  return {.name = std::move(name),
          .baseline = std::move(baseline),
          .mean = mean,
          .error = error,
          .n = std::ssize(means),
          .n_larger = std::ranges::count_if(means, [](double x) { return x > 0; })};
}

double snr_of(const Quantizer& quantizer, const MatrixShape& shape, std::span<const float> x) {
  std::vector<uint8_t> q(x.size());
  std::vector<float> scales(
      static_cast<size_t>(scale_shape(shape, quantizer.granularity).n_elems()));
  std::vector<float> y(x.size());
  octet::quantize(quantizer, shape, x, q, scales);
  octet::dequantize(quantizer, shape, q, scales, y);
  const QuantizationError error = error_of(x, y);
  return snr_db(error.signal, error.mse);
}

std::vector<std::string> activation_groupings() {
  return {std::begin(kGroupings), std::end(kGroupings)};
}

namespace {

// Names of two groupings that stand beside each other.
struct GroupingPair {
  std::string name, baseline;
};

// Each grouping and the baseline; then those of as many elements, unless they are there.
std::vector<GroupingPair> pairs_of(const std::vector<std::string>& names,
                                   std::string_view baseline) {
  std::vector<GroupingPair> pairs;
  const auto has = [&](std::string_view name) { return std::ranges::count(names, name) > 0; };
  for (const std::string& name : names) {
    if (name != baseline) pairs.push_back({name, std::string(baseline)});
  }
  for (const auto& [group, block] : kEqualSizes) {
    if (has(group) && has(block) && block != baseline && group != baseline)
      pairs.push_back({std::string(group), std::string(block)});
  }
  return pairs;
}

// The signal to noise of each norm's input, by grouping.
class NormInputs {
 public:
  explicit NormInputs(int64_t hidden) {
    for (const std::string_view name : kGroupings) {
      if (is_narrower(name, hidden)) names_.emplace_back(name);
    }
    snr_.resize(names_.size());
  }

  void add(std::string norm, const MatrixShape& shape, std::span<const float> values) {
    norms_.push_back(std::move(norm));
    for (size_t i = 0; i < names_.size(); ++i)
      snr_[i].push_back(snr_by_scale(quantizer_of(Dtype::e4m3, names_[i]), shape, values));
  }

  const std::vector<std::string>& groupings() const { return names_; }

  Figure figure() const {
    Figure figure{.file = "norm_inputs",
                  .title = "Inputs of norms in E4M3 by grouping",
                  .x_title = "norm",
                  .y_title = "signal to noise, dB",
                  .has_dots = true,
                  .x_names = norms_};
    add_series(figure, "", &SnrAndDraw::mean);
    return figure;
  }

  // Each with the error over scales.
  Sheet each() const {
    Figure with_errors = figure();
    add_series(with_errors, " +-", &SnrAndDraw::error);
    return sheet_of(with_errors);
  }

  std::vector<SnrAndDraw> differences(const GroupingPair& pair) const {
    const auto &a = of(pair.name), &b = of(pair.baseline);
    std::vector<SnrAndDraw> result;
    for (size_t i = 0; i < a.size(); ++i) result.push_back(difference_over_scales(a[i], b[i]));
    return result;
  }

  Sheet differences_by_norm(const std::vector<GroupingPair>& pairs) const {
    Sheet sheet{.file = "differences", .columns = {"norm"}};
    for (const std::string& norm : norms_) sheet.rows.push_back({norm});
    for (const GroupingPair& pair : pairs) {
      sheet.columns.push_back(pair.name + " - " + pair.baseline);
      sheet.columns.push_back(sheet.columns.back() + " +-");
      const std::vector<SnrAndDraw> of_norms = differences(pair);
      for (size_t i = 0; i < of_norms.size(); ++i) {
        sheet.rows[i].push_back(number_cell("{:.9g}", of_norms[i].mean));
        sheet.rows[i].push_back(number_cell("{:.9g}", of_norms[i].error));
      }
    }
    return sheet;
  }

 private:
  const std::vector<SnrByScale>& of(const std::string& name) const {
    return snr_[static_cast<size_t>(std::ranges::find(names_, name) - names_.begin())];
  }

  void add_series(Figure& figure, const char* suffix, double SnrAndDraw::*part) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      Series series{.name = names_[i] + suffix};
      for (const SnrByScale& snr : snr_[i]) {
        series.x.push_back(static_cast<double>(series.x.size()));
        series.y.push_back(over_scales(snr).*part);
      }
      figure.series.push_back(std::move(series));
    }
  }

  std::vector<std::string> names_, norms_;
  std::vector<std::vector<SnrByScale>> snr_;  // by grouping, then norm
};

Sheet paired_sheet(const NormInputs& inputs, const std::vector<GroupingPair>& pairs) {
  Sheet sheet{.file = "paired",
              .columns = {"grouping", "baseline", "difference dB", "+-", "norms", "larger"}};
  for (const GroupingPair& pair : pairs) {
    const PairedSnr paired = paired_snr(pair.name, pair.baseline, inputs.differences(pair));
    sheet.rows.push_back({paired.name, paired.baseline, number_cell("{:.9g}", paired.mean),
                          number_cell("{:.9g}", paired.error), fmt::to_string(paired.n),
                          fmt::to_string(paired.n_larger)});
  }
  return sheet;
}

}  // namespace

Study study_activations(const ModelSpec& spec, const std::vector<Batch>& rows,
                        ModelWalk::ReadParameter read, Backend& backend,
                        std::string_view baseline) {
  NormInputs inputs(spec.hidden);
  if (std::ranges::count(inputs.groupings(), baseline) == 0) {
    throw Error(ErrorCode::invalid_argument, "[study] --baseline: expected one of {}, got '{}'",
                fmt::join(inputs.groupings(), ", "), baseline);
  }
  const Graph graph = typed_forward(spec, rows.front());
  ModelWalk walk(graph, rows, backend, std::move(read));
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!is_norm(node.op)) continue;
    const ValueId x = node.in(RmsNorm::x);
    walk.run_to(static_cast<NodeId>(n), {&x, 1}, {});
    std::vector<float> values;
    for (size_t batch = 0; batch < walk.n_batches(); ++batch)
      values.insert(values.end(), walk.value(x, batch).begin(), walk.value(x, batch).end());
    const int64_t cols = graph.type(x).shape.back();
    inputs.add(norm_name(node), {std::ssize(values) / cols, cols}, values);
  }
  const std::vector<GroupingPair> pairs = pairs_of(inputs.groupings(), baseline);
  return {.title = "Activations before norms",
          .table = paired_sheet(inputs, pairs),
          .sheets = {inputs.each(), inputs.differences_by_norm(pairs)},
          .figures = {inputs.figure()}};
}

Study study_tensors(const SafetensorsReader& file) {
  Study study{.title = "Tensors of a file", .table = {.file = "tensors"}};
  Sheet& sheet = study.table;
  sheet.columns = {"tensor", "elements", "largest", "smallest", "octaves", "best"};
  Figure figure{.file = "tensors",
                .title = "Signal to noise of tensors by format",
                .x_title = "tensor",
                .y_title = "dB",
                .has_dots = true};
  for (const Scheme& scheme : kTensorSchemes) {
    sheet.columns.push_back(fmt::format("{} dB", scheme.name));
    sheet.columns.push_back(fmt::format("{} +-", scheme.name));
    figure.series.push_back({.name = std::string(scheme.name)});
  }
  for (const StoredTensor& tensor : file.tensors()) {
    const bool is_real = tensor.dtype && !is_quantized(*tensor.dtype) && is_float(*tensor.dtype);
    const std::vector<float> x =
        is_real ? decode_values(*tensor.dtype, file.read(tensor.name)) : std::vector<float>();
    const auto [largest, smallest, is_finite] = magnitudes_of(x);
    const std::string why = !is_real     ? "of type " + std::string(safe_dtype_name(tensor.stored))
                            : !is_finite ? "not finite"
                            : largest == 0 ? "without a value but 0"
                                           : "";
    if (!why.empty()) {
      study.left_out.push_back(tensor.name + ": " + why);
      continue;
    }
    std::vector<std::string> cells;
    std::vector<SnrAndDraw> of_schemes;
    for (size_t i = 0; i < std::size(kTensorSchemes); ++i) {
      const Scheme& scheme = kTensorSchemes[i];
      const Quantizer q = scheme.is_mx ? mx_quantizer(scheme.dtype)
                                       : quantizer_of(scheme.dtype, scheme.granularity);
      const SnrAndDraw snr = snr_over_scales(q, matrix_of(tensor, x.size()), x);
      of_schemes.push_back(snr);
      cells.push_back(number_cell("{:.2f}", snr.mean));
      cells.push_back(number_cell("{:.2f}", snr.error));
      figure.series[i].x.push_back(static_cast<double>(sheet.rows.size()));
      figure.series[i].y.push_back(snr.mean);
    }
    const double octaves = std::log2(static_cast<double>(largest) / static_cast<double>(smallest));
    std::vector<std::string> row = {tensor.name,
                                    fmt::to_string(x.size()),
                                    fmt::format("{:g}", largest),
                                    fmt::format("{:g}", smallest),
                                    fmt::format("{:.1f}", octaves),
                                    best_of(of_schemes)};
    row.insert(row.end(), cells.begin(), cells.end());
    sheet.rows.push_back(std::move(row));
    figure.x_names.push_back(tensor.name);
  }
  if (sheet.rows.empty()) {
    throw Error(ErrorCode::bad_data, "[study] {}: expected tensors of real numbers, got none",
                file.path());
  }
  study.figures = {std::move(figure)};
  return study;
}

}  // namespace octet
