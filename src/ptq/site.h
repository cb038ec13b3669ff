// One site's decision: what calibrate() does at each stop of its walk.
#pragma once

#include <cmath>

#include "ptq/calibrate.h"

namespace octet {

// The inputs of a site over all calibration rows, and the weights that read them.
struct SiteInputs {
  const PtqSite& site;
  std::vector<std::span<float>> x = {};          // a span a batch; for sums operand a
  std::vector<std::span<float>> exact_x = {};    // the same of what the error is taken against
  std::vector<std::span<float>> b = {};          // sums: operand b
  std::vector<std::vector<float>> weights = {};  // [out, in], by linear
  std::vector<float> norm_weight = {}, norm_bias = {};
  std::function<void(std::span<float>)> round_norm = {};  // to what its file will hold
  int64_t n_cols = 0;

  // Rows of the largest batch, which is the first.
  int64_t rows_of_batch() const { return std::ssize(x.front()) / n_cols; }
  int64_t n_rows() const;
};

// Each row of each batch, by channel.
void divide_inputs(std::span<const std::span<float>> batches, std::span<const float> divisor);

class SiteQuantizer {
 public:
  SiteQuantizer(const PtqOptions& options, Backend& backend, const Log& log = {})
      : options_(options), backend_(backend), log_(log) {}

  // May divide x and change weights and norm where it smooths. Throws Error{numerics} where an
  // operand is NaN or Inf.
  SiteResult quantize(SiteInputs& inputs) const;

 private:
  // Exponents of the input and the weight of a linear.
  struct Exponents {
    int x = 0, w = 0;
  };
  QuantizedLinear at_exponents(const SiteInputs& inputs, size_t at, Exponents exponents) const;
  std::vector<Exponents> search_exponents(const SiteInputs& inputs) const;
  // By the input's exponent, from kMinExponent on.
  struct WeightChoice {
    int exponent = 0;
    double error = INFINITY;
  };
  std::vector<WeightChoice> weight_choices(const SiteInputs& inputs, size_t at) const;
  SiteResult quantize_sum(const SiteInputs& inputs) const;
  // gram: of the inputs, where the method needs it.
  QuantizedLinear quantize_linear(const SiteInputs& inputs, size_t at,
                                  std::span<const double> gram) const;
  double output_signal(const SiteInputs& inputs, size_t at) const;
  std::optional<double> find_alpha(const SiteInputs& inputs, std::vector<float>& divisor) const;
  static void apply_divisor(SiteInputs& inputs, std::vector<float>& divisor);
  double smoothed_error(const SiteInputs& inputs, std::span<const float> divisor) const;

  WeightQuantizer weight_quantizer(const MatrixShape& shape) const;
  // phase: the quantizer with the scales of least error, of inputs as they will be quantized.
  WeightQuantizer in_best_phase(const SiteInputs& inputs, size_t at, WeightQuantizer quantizer,
                                const std::optional<ActivationQuantizer>& input) const;
  // `operand`: what a warning calls it; empty: none is wanted.
  std::optional<ActivationQuantizer> input_quantizer(std::span<const std::span<float>> batches,
                                                     const std::string& operand = "") const;
  float largest_kept(std::span<const std::span<float>> batches, const std::string& operand) const;
  void report(const SiteInputs& inputs, size_t at, QuantizedLinear& result) const;

  const PtqOptions& options_;
  Backend& backend_;
  Log log_;
};

}  // namespace octet
