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
  if (all.nonfinite) {
    throw Error(ErrorCode::numerics, "[ptq] expected finite activations, got NaN or Inf");
  }
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

std::optional<ActivationQuantizer> SiteQuantizer::input_quantizer(
    std::span<const std::span<float>> batches) const {
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
  const bool is_share = options_.method == PtqMethod::percentile;
  q.scale = scale_of(rule, rule.scale ? 0
                           : is_share ? percentile_of(batches, options_.percentile)
                                      : largest_of(batches));
  q.power = false;
  return q;
}

// Every pair of 2^kLeastExponent .. 2^kMostExponent, as the paper has it: x 2^Ea, w 2^Ew.
void SiteQuantizer::search_exponents(const SiteInputs& inputs, size_t at,
                                     QuantizedLinear& result) const {
  ThreadPool& pool = *backend_.pool;
  const PtqLinear& linear = result.linear;
  const MatrixShape shape{linear.n_out, linear.n_in};
  const std::span<const float> w = inputs.weights[at];
  PairErrors errors(linear_shape(inputs, at), w, backend_);
  WeightQuantizer of_w = weight_quantizer(shape);
  double least = INFINITY;
  for (int ea = kLeastExponent; ea <= kMostExponent; ++ea) {
    ActivationQuantizer of_x = *result.input;
    of_x.scale = power_of_two(-ea);
    errors.clear();
    for (size_t i = 0; i < inputs.x.size(); ++i)
      errors.add(inputs.exact_x[i], simulated(of_x, inputs.x[i], inputs.n_cols, pool));
    for (int ew = kLeastExponent; ew <= kMostExponent; ++ew) {
      of_w.scale = power_of_two(-ew);
      QuantizedWeight weight = quantize_weight(of_w, shape, w, pool);
      const double sum = errors.error(difference(w, weight, pool));
      if (!(sum < least)) continue;
      least = sum;
      result.weight = std::move(weight);
      result.input = of_x;
    }
  }
  if (!(least < INFINITY)) {
    throw Error(ErrorCode::numerics, "[ptq] {}: expected a finite error, got none", linear.name);
  }
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

QuantizedLinear SiteQuantizer::quantize_linear(const SiteInputs& inputs, size_t at,
                                               std::span<const double> gram) const {
  QuantizedLinear result{.linear = inputs.site.linears[at]};
  const MatrixShape shape{result.linear.n_out, result.linear.n_in};
  const std::span<const float> w = inputs.weights[at];
  ThreadPool& pool = *backend_.pool;
  if (options_.method == PtqMethod::algorithm1) {
    result.input = ActivationQuantizer{.dtype = element_dtype(options_.format)};
    search_exponents(inputs, at, result);
  } else if (options_.method == PtqMethod::gptq) {
    const GptqOptions how{.damping = options_.damping};
    result.input = input_quantizer(inputs.x);
    result.weight = gptq(weight_quantizer(shape), {shape, w}, {gram, inputs.n_rows()}, how, pool);
  } else {
    result.input = input_quantizer(inputs.x);
    result.weight = quantize_weight(weight_quantizer(shape), shape, w, pool);
  }
  report(inputs, at, result);
  return result;
}

SiteResult SiteQuantizer::quantize_sum(const SiteInputs& inputs) const {
  SiteResult result;
  for (const auto& [batches, letter] : {std::pair(&inputs.x, 'a'), std::pair(&inputs.b, 'b')}) {
    const auto quantizer = input_quantizer(*batches);
    if (!quantizer || !quantizer->scale) continue;
    const std::string name = residual_name(inputs.site.layer, inputs.site.sum, letter);
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
  if (inputs.site.linears.empty()) return quantize_sum(inputs);
  SiteResult result;
  std::optional<double> alpha;
  if (options_.method == PtqMethod::smoothquant) alpha = find_alpha(inputs, result.divisor);
  if (alpha) {
    apply_divisor(inputs, result.divisor);
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
  for (size_t i = 0; i < inputs.site.linears.size(); ++i) {
    const auto sum = gram ? std::span<const double>(gram->sum()) : std::span<const double>();
    result.linears.push_back(quantize_linear(inputs, i, sum));
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
