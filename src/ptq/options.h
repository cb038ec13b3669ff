// Options of post-training quantization: a format, a method, and how finely scales are chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/named_enum.h"
#include "formats/dtype.h"
#include "io/quantization_config.h"

namespace octet {

// mxfp8: E4M3 in groups of 32 with E8M0 scales. fp8_block: E4M3, weights in blocks of 128 x 128 and
// activations in groups of 128.
enum class PtqFormat : uint8_t { e4m3, e5m2, hif8, int8, mxfp8, fp8_block };
constexpr auto value_names(PtqFormat) {
  return name_list("e4m3", "e5m2", "hif8", "int8", "mxfp8", "fp8-block");
}

//   direct       no scales (INT8, which has no exponents: those of the tensor at hand)
//   max          scales of the largest magnitude, of activations over the calibration text
//   phase        max, but each matrix's weight scales times 2^(p / 8), the p in 0..7 with the least
//                error of the layer's output (powers of two alone would move no rounding)
//   percentile   the same as max, but a share of activations' magnitudes lies beyond
//   algorithm1   scales that are powers of two: of 2^-5..2^4 for each of the two operands the pair
//                with the least error of the layer's output (Luo et al. 2024, algorithm 1)
//   smoothquant  max, with outliers of activations moved into weights where a norm comes before
//                (Xiao et al. 2023); alpha by the output's error
//   gptq         INT8 weights, each column's error made good by those after it (Frantar et al.
//   2023)
//   smoothed     smoothquant, then algorithm1's scales of what it gives
enum class PtqMethod : uint8_t {
  direct,
  max,
  percentile,
  algorithm1,
  smoothquant,
  gptq,
  phase,
  smoothed
};
constexpr auto value_names(PtqMethod) {
  return name_list("direct", "max", "percentile", "algorithm1", "smoothquant", "gptq", "phase",
                   "smoothed");
}
constexpr bool searches_exponents(PtqMethod method) {
  return method == PtqMethod::algorithm1 || method == PtqMethod::smoothed;
}
constexpr bool smooths(PtqMethod method) {
  return method == PtqMethod::smoothquant || method == PtqMethod::smoothed;
}

// algorithm1 (here and below smoothed too): whose output of the layer the error is taken against.
// unquantized: that of the model before quantization, as the paper has it, so that a layer also
// makes good what was lost before it; quantized: that of the layer's own weights on the inputs that
// the quantized model gives it.
enum class ErrorTarget : uint8_t { unquantized, quantized };
constexpr auto value_names(ErrorTarget) {
  return name_list("unquantized", "quantized");
}

// The part of a weight that a scale covers: all of it, an output channel, 128 inputs of one.
enum class WeightScaling : uint8_t { tensor, channel, group };
constexpr auto value_names(WeightScaling) {
  return name_list("tensor", "channel", "group");
}

struct PtqOptions {
  PtqFormat format = PtqFormat::e4m3;
  PtqMethod method = PtqMethod::max;
  std::optional<WeightScaling> weights = {};          // the method's choice where absent
  std::optional<ActivationScaling> activations = {};  // likewise
  std::optional<ErrorTarget> target = {};             // likewise: algorithm1's alone
  // algorithm1: linears that read one value have one scale of their input, the pairs with the
  // least sum of errors relative to the outputs.
  bool share_inputs = false;
  std::vector<std::string> keep = {"lm_head"};  // patterns of linears that stay unquantized
  double percentile = 99.99;
  bool residual = false;                  // residual sums are quantized too
  std::optional<int> exponent_bias = {};  // direct: in the place of the format's own
  int64_t samples = 0, seq = 0;           // calibration rows, tokens of each; 0: the method's
  double damping = 0.01;                  // gptq, of the mean of the Hessian's diagonal
};

inline constexpr int64_t kPtqGroup = 128, kPtqBlock = 128, kMxGroupSize = 32;
inline constexpr int kPhases = 8;                          // of a scale, between two powers of two
inline constexpr int kMinExponent = -4, kMaxExponent = 5;  // algorithm 1: x * 2^exponent

Dtype element_dtype(PtqFormat format);
bool has_own_groups(PtqFormat format);  // granularity is the format's

// Fills what is absent. Throws Error{invalid_argument} "[ptq] --FLAG: expected ..., got ..." for
// what does not go together.
PtqOptions checked(const PtqOptions& options);

}  // namespace octet
