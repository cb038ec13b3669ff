#include "ptq/site.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ptq/gptq.h"
#include "ptq/products.h"

namespace octet {
namespace {

float largest_of(std::span<const std::span<float>> batches) {
  Amax all;
  for (const auto& x : batches) all = join(all, amax(x));
  return all.value;
}

// The magnitude that `percent` of all do not exceed.
float percentile_of(std::span<const std::span<float>> batches, double percent) {
  std::vector<float> magnitudes;
  for (const auto& x : batches) {
    for (const float value : x) magnitudes.push_back(std::abs(value));
  }
  const auto last = static_cast<double>(magnitudes.size() - 1);
  const auto at = static_cast<int64_t>(std::ceil(percent / 100 * last));
  std::nth_element(magnitudes.begin(), magnitudes.begin() + at, magnitudes.end());
  return magnitudes[static_cast<size_t>(at)];
}

// The one rule for all methods, also of those that measure nothing.
void check_finite(const PtqSite& site, std::span<const std::span<float>> batches,
                  std::string_view operand) {
  if (std::ranges::none_of(batches, [](const auto& x) { return amax(x).nonfinite; })) return;
  bool is_nan = false;
  for (const auto& x : batches)
    is_nan = is_nan || std::ranges::any_of(x, [](float value) { return std::isnan(value); });
  throw Error(ErrorCode::numerics, "[ptq] {}: expected {} that is finite in calibration, got {}",
              site_name(site), operand, is_nan ? "NaN" : "Inf");
}

void check_operands(const SiteInputs& inputs) {
  const bool is_sum = inputs.site.linears.empty();
  check_finite(inputs.site, inputs.x, is_sum ? "operand a" : "an input");
  check_finite(inputs.site, inputs.b, "operand b");
  if (inputs.exact_x.empty() || inputs.exact_x.front().data() == inputs.x.front().data()) return;
  check_finite(inputs.site, inputs.exact_x, "an input in the unquantized model");
}

// The unquantized model's inputs as weights that were multiplied read them, where they are others
// than the site's: the walk goes on with its own.
std::vector<std::vector<float>> divided_exact(SiteInputs& inputs, std::span<const float> divisor) {
  std::vector<std::vector<float>> copies;
  if (inputs.exact_x.front().data() == inputs.x.front().data()) return copies;
  for (const auto& x : inputs.exact_x) copies.emplace_back(x.begin(), x.end());
  inputs.exact_x.assign(copies.begin(), copies.end());
  divide_inputs(inputs.exact_x, divisor);
  return copies;
}

LinearShape linear_shape(const SiteInputs& inputs, size_t at) {
  const PtqLinear& linear = inputs.site.linears[at];
  return {inputs.rows_of_batch(), linear.n_in, linear.n_out};
}

QuantizationError error_of_input(const std::optional<ActivationQuantizer>& quantizer,
                                 std::span<const float> x, std::span<const float> q_x) {
  QuantizationError error = error_of(x, q_x);
  if (quantizer && quantizer->scale) add_clipping(quantizer->dtype, *quantizer->scale, x, error);
  return error;
}

bool is_power_format(PtqFormat format) {
  return format == PtqFormat::hif8 || format == PtqFormat::mxfp8;
}

int default_bias(Dtype dtype) {
  return find_format(dtype).bias;
}

}  // namespace

WeightQuantizer SiteQuantizer::weight_quantizer(const MatrixShape& shape) const {
  const Dtype dtype = element_dtype(options_.format);
  WeightQuantizer q{.dtype = dtype,
                    .block = {shape.rows, shape.cols},
                    .power = is_power_format(options_.format),
                    .target = find_format(dtype).amax_target};
  if (options_.format == PtqFormat::mxfp8) {
    q.block = {1, kMxGroupSize};
    q.scale_type = Dtype::e8m0;
  } else if (options_.format == PtqFormat::fp8_block) {
    q.block = {kPtqBlock, kPtqBlock};
  } else if (options_.weights == WeightScaling::channel) {
    q.block = {1, shape.cols};
  } else if (options_.weights == WeightScaling::group) {
    // Groups that do not fit are a row each: other programs load none that is shorter.
    q.block = {1, shape.cols % kPtqGroup == 0 ? kPtqGroup : shape.cols};
  }
  if (options_.method == PtqMethod::direct && dtype != Dtype::int8 &&
      !has_own_groups(options_.format)) {
    const int bias = options_.exponent_bias.value_or(default_bias(dtype));
    q.scale = power_of_two(default_bias(dtype) - bias);
  }
  return q;
}

// A percentile of 0 says that most are 0, and nothing of the others: their largest is taken.
float SiteQuantizer::largest_kept(std::span<const std::span<float>> batches,
                                  const std::string& operand) const {
  if (options_.method != PtqMethod::percentile) return largest_of(batches);
  const float share = percentile_of(batches, options_.percentile);
  if (share > 0) return share;
  const float largest = largest_of(batches);
  if (largest > 0 && !operand.empty()) {
    log_.warning("[ptq] {}: percentile {} of the magnitudes is 0: taking the largest, {}", operand,
                 options_.percentile, largest);
  }
  return largest;
}

std::optional<ActivationQuantizer> SiteQuantizer::input_quantizer(
    std::span<const std::span<float>> batches, const std::string& operand) const {
  const Dtype dtype = element_dtype(options_.format);
  ActivationQuantizer q{.dtype = dtype,
                        .target = static_cast<double>(find_format(dtype).amax_target),
                        .power = is_power_format(options_.format)};
  if (options_.format == PtqFormat::mxfp8) q.group = kMxGroupSize;
  if (options_.format == PtqFormat::fp8_block) q.group = kPtqGroup;
  if (q.group > 0) return q;
  switch (*options_.activations) {
    case ActivationScaling::none:
      return std::nullopt;
    case ActivationScaling::token:
      q.group = kWholeRow;
      return q;
    case ActivationScaling::tensor:
      q.power = false;
      return q;
    default:
      break;
  }
  WeightQuantizer rule = weight_quantizer({1, 1});
  q.scale = scale_of(rule, rule.scale ? 0 : largest_kept(batches, operand));
  q.power = false;
  return q;
}

// Every pair of 2^kMinExponent .. 2^kMaxExponent, as the paper has it: x 2^Ea, w 2^Ew.
std::vector<SiteQuantizer::WeightChoice> SiteQuantizer::weight_choices(const SiteInputs& inputs,
                                                                       size_t at) const {
  ThreadPool& pool = *backend_.pool;
  const PtqLinear& linear = inputs.site.linears[at];
  const MatrixShape shape{linear.n_out, linear.n_in};
  const std::span<const float> w = inputs.weights[at];
  PairErrors errors(linear_shape(inputs, at), w, backend_);
  WeightQuantizer of_w = weight_quantizer(shape);
  ActivationQuantizer of_x{.dtype = element_dtype(options_.format)};
  std::vector<WeightChoice> choices;
  for (int ea = kMinExponent; ea <= kMaxExponent; ++ea) {
    of_x.scale = power_of_two(-ea);
    errors.clear();
    for (size_t i = 0; i < inputs.x.size(); ++i)
      errors.add(inputs.exact_x[i], simulated(of_x, inputs.x[i], inputs.n_cols, pool));
    WeightChoice& best = choices.emplace_back();
    for (int ew = kMinExponent; ew <= kMaxExponent; ++ew) {
      of_w.scale = power_of_two(-ew);
      const double sum = errors.error(difference(w, quantize_weight(of_w, shape, w, pool), pool));
      if (sum < best.error) best = {ew, sum};
    }
  }
  return choices;
}

double SiteQuantizer::output_signal(const SiteInputs& inputs, size_t at) const {
  const std::span<const float> w = inputs.weights[at];
  OutputError outputs(linear_shape(inputs, at), w, w, backend_);
  for (const auto& x : inputs.exact_x) outputs.add(x, x);
  return outputs.signal();
}

std::vector<SiteQuantizer::Exponents> SiteQuantizer::search_exponents(
    const SiteInputs& inputs) const {
  const size_t n = inputs.site.linears.size();
  std::vector<std::vector<WeightChoice>> choices;
  std::vector<double> shared(kMaxExponent - kMinExponent + 1, 0.0);  // by the input's exponent
  for (size_t at = 0; at < n; ++at) {
    choices.push_back(weight_choices(inputs, at));
    const double signal = options_.share_inputs ? output_signal(inputs, at) : 1;
    for (size_t i = 0; i < shared.size(); ++i)
      shared[i] += choices[at][i].error / std::max(signal, 1e-300);
  }
  const auto together = std::ranges::min_element(shared) - shared.begin();
  std::vector<Exponents> result;
  for (const auto& of_linear : choices) {
    auto best = std::ranges::min_element(of_linear, {}, &WeightChoice::error) - of_linear.begin();
    if (options_.share_inputs) best = together;
    const WeightChoice& choice = of_linear[static_cast<size_t>(best)];
    if (!(choice.error < INFINITY)) {
      throw Error(ErrorCode::numerics, "[ptq] {}: expected a finite error, got none",
                  site_name(inputs.site));
    }
    result.push_back({kMinExponent + static_cast<int>(best), choice.exponent});
  }
  return result;
}

void SiteQuantizer::report(const SiteInputs& inputs, size_t at, QuantizedLinear& result) const {
  const std::vector<float>& w = inputs.weights[at];
  const std::vector<float> q_w = dequantized(result.weight);
  SiteReport& report = result.report;
  report.name = result.linear.name;
  const auto [least, most] = std::ranges::minmax_element(result.weight.scales);
  report.weight_scale_min = static_cast<double>(*least);
  report.weight_scale_max = static_cast<double>(*most);
  report.weight = error_of(w, q_w);
  if (result.weight.scales.size() == 1) {
    add_clipping(result.weight.dtype, result.weight.scales.front(), w, report.weight);
  }
  OutputError error(linear_shape(inputs, at), w, q_w, backend_);
  ErrorSum input;
  for (const auto& x : inputs.x) {
    std::vector<float> q_x(x.begin(), x.end());
    if (result.input) q_x = simulated(*result.input, x, inputs.n_cols, *backend_.pool);
    error.add(x, q_x);
    input.add(error_of_input(result.input, x, q_x), std::ssize(x));
  }
  report.input = input.mean();
  if (result.input && result.input->scale)
    report.input_scale = static_cast<double>(*result.input->scale);
  report.output_snr_db = decibels(error.signal(), error.error());
}

WeightQuantizer SiteQuantizer::in_best_phase(
    const SiteInputs& inputs, size_t at, WeightQuantizer quantizer,
    const std::optional<ActivationQuantizer>& input) const {
  const PtqLinear& linear = inputs.site.linears[at];
  const std::span<const float> w = inputs.weights[at];
  ThreadPool& pool = *backend_.pool;
  PairErrors errors(linear_shape(inputs, at), w, backend_);
  errors.clear();
  for (const auto& x : inputs.x) {
    std::vector<float> q_x(x.begin(), x.end());
    if (input) q_x = simulated(*input, x, inputs.n_cols, pool);
    errors.add(x, q_x);
  }
  const float target = quantizer.target;
  WeightQuantizer best = quantizer;
  double least = INFINITY;
  for (int phase = 0; phase < kPhases; ++phase) {
    quantizer.target = static_cast<float>(target * std::exp2(-phase / double{kPhases}));
    std::vector<float> d =
        dequantized(quantize_weight(quantizer, {linear.n_out, linear.n_in}, w, pool));
    for (size_t i = 0; i < d.size(); ++i) d[i] = w[i] - d[i];
    const double error = errors.error(d);
    if (error < least) least = error, best = quantizer;
  }
  return best;
}

QuantizedLinear SiteQuantizer::quantize_linear(const SiteInputs& inputs, size_t at,
                                               std::span<const double> gram) const {
  QuantizedLinear result{.linear = inputs.site.linears[at]};
  const MatrixShape shape{result.linear.n_out, result.linear.n_in};
  const std::span<const float> w = inputs.weights[at];
  ThreadPool& pool = *backend_.pool;
  // Said once: the linears of a site read one value.
  result.input = input_quantizer(inputs.x, at == 0 ? site_name(inputs.site) : "");
  if (options_.method == PtqMethod::gptq) {
    const GptqOptions how{.damping = options_.damping};
    result.weight = gptq(weight_quantizer(shape), {shape, w}, {gram, inputs.n_rows()}, how, pool);
  } else {
    WeightQuantizer of_w = weight_quantizer(shape);
    if (options_.method == PtqMethod::phase) of_w = in_best_phase(inputs, at, of_w, result.input);
    result.weight = quantize_weight(of_w, shape, w, pool);
  }
  report(inputs, at, result);
  return result;
}

QuantizedLinear SiteQuantizer::at_exponents(const SiteInputs& inputs, size_t at,
                                            Exponents exponents) const {
  QuantizedLinear result{.linear = inputs.site.linears[at]};
  const MatrixShape shape{result.linear.n_out, result.linear.n_in};
  WeightQuantizer of_w = weight_quantizer(shape);
  of_w.scale = power_of_two(-exponents.w);
  result.input = ActivationQuantizer{.dtype = of_w.dtype, .scale = power_of_two(-exponents.x)};
  result.weight = quantize_weight(of_w, shape, inputs.weights[at], *backend_.pool);
  report(inputs, at, result);
  return result;
}

SiteResult SiteQuantizer::quantize_sum(const SiteInputs& inputs) const {
  SiteResult result;
  for (const auto& [batches, letter] : {std::pair(&inputs.x, 'a'), std::pair(&inputs.b, 'b')}) {
    const std::string name = residual_name(inputs.site.layer, inputs.site.sum, letter);
    const auto quantizer = input_quantizer(*batches, name);
    if (!quantizer || !quantizer->scale) continue;
    SiteReport report{.name = name, .input_scale = static_cast<double>(*quantizer->scale)};
    ErrorSum error;
    for (const auto& x : *batches) {
      const std::vector<float> q_x = simulated(*quantizer, x, inputs.n_cols, *backend_.pool);
      error.add(error_of_input(quantizer, x, q_x), std::ssize(x));
    }
    report.input = error.mean();
    result.residuals.emplace(name, *quantizer);
    result.sums.push_back(report);
  }
  return result;
}

SiteResult SiteQuantizer::quantize(SiteInputs& inputs) const {
  check_operands(inputs);
  if (inputs.site.linears.empty()) return quantize_sum(inputs);
  SiteResult result;
  std::optional<double> alpha;
  std::vector<std::vector<float>> exact_x;
  if (smooths(options_.method)) alpha = find_alpha(inputs, result.divisor);
  if (alpha) {
    apply_divisor(inputs, result.divisor);
    exact_x = divided_exact(inputs, result.divisor);
    divide_inputs(inputs.x, result.divisor);
    result.norms.emplace(inputs.site.norm.weight, inputs.norm_weight);
    if (!inputs.norm_bias.empty()) {
      result.norms.emplace(inputs.site.norm.bias, inputs.norm_bias);
    }
  }
  std::optional<Gram> gram;
  if (options_.method == PtqMethod::gptq) {
    gram.emplace(inputs.rows_of_batch(), inputs.n_cols, backend_);
    for (const auto& x : inputs.x) gram->add(x);
  }
  std::vector<Exponents> exponents;
  if (searches_exponents(options_.method)) exponents = search_exponents(inputs);
  for (size_t i = 0; i < inputs.site.linears.size(); ++i) {
    const auto sum = gram ? std::span<const double>(gram->sum()) : std::span<const double>();
    result.linears.push_back(exponents.empty() ? quantize_linear(inputs, i, sum)
                                               : at_exponents(inputs, i, exponents[i]));
    result.linears.back().report.alpha = alpha;
  }
  return result;
}

int64_t SiteInputs::n_rows() const {
  int64_t n = 0;
  for (const auto& batch : x) n += std::ssize(batch) / n_cols;
  return n;
}

void divide_inputs(std::span<const std::span<float>> batches, std::span<const float> divisor) {
  for (const auto& x : batches) {
    for (size_t i = 0; i < x.size(); ++i) x[i] /= divisor[i % divisor.size()];
  }
}

}  // namespace octet
