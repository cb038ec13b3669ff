#include "ptq/options.h"

#include "base/error.h"

namespace octet {
namespace {

template <typename... Args>
[[noreturn]] void bad(std::string_view flag, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorCode::invalid_argument, "[ptq] --{}: expected {}", flag,
              fmt::format(text, std::forward<Args>(args)...));
}

void check_method(const PtqOptions& o) {
  const bool is_int = o.format == PtqFormat::int8;
  const std::string_view format = enum_name(o.format), method = enum_name(o.method);
  if (o.method == PtqMethod::gptq && !is_int) bad("method", "gptq with int8, got {}", format);
  if (searches_exponents(o.method) && (is_int || has_own_groups(o.format))) {
    bad("method", "{} with e4m3, e5m2 or hif8, got {}", method, format);
  }
  const bool has_phases = o.format == PtqFormat::e4m3 || o.format == PtqFormat::e5m2 ||
                          o.format == PtqFormat::fp8_block;
  if (o.method == PtqMethod::phase && !has_phases)
    bad("method", "phase with e4m3, e5m2 or fp8-block, got {}", format);
  if (o.method == PtqMethod::percentile && has_own_groups(o.format)) {
    bad("method", "percentile with e4m3, e5m2, hif8 or int8, got {}", format);
  }
  if (o.exponent_bias && (o.method != PtqMethod::direct ||
                          (o.format != PtqFormat::e4m3 && o.format != PtqFormat::e5m2))) {
    bad("bias", "e4m3 or e5m2 with direct, got {} with {}", format, method);
  }
}

void check_granularity(const PtqOptions& o) {
  const std::string_view format = enum_name(o.format), method = enum_name(o.method);
  if (has_own_groups(o.format) && (o.weights || o.activations)) {
    bad("weights, --activations", "none with {}, whose groups are its own", format);
  }
  const bool is_cast = o.method == PtqMethod::direct && o.format != PtqFormat::int8;
  if (o.weights && (is_cast || searches_exponents(o.method))) {
    bad("weights", "none with {} in {}: one scale for the tensor", method, format);
  }
  if (o.activations && searches_exponents(o.method)) {
    bad("activations", "none with {}: one scale for the tensor", method);
  }
  if (o.target && !searches_exponents(o.method)) {
    bad("target", "none with {}: algorithm1's alone", method);
  }
  if (o.share_inputs && !searches_exponents(o.method)) {
    bad("share-inputs", "algorithm1, got {}, whose linears that read one value share its scale",
        method);
  }
  if (o.activations == ActivationScaling::group) bad("activations", "tensor, token or none");
}

}  // namespace

Dtype element_dtype(PtqFormat format) {
  switch (format) {
    case PtqFormat::e5m2:
      return Dtype::e5m2;
    case PtqFormat::hif8:
      return Dtype::hif8;
    case PtqFormat::int8:
      return Dtype::int8;
    default:
      return Dtype::e4m3;
  }
}

bool has_own_groups(PtqFormat format) {
  return format == PtqFormat::mxfp8 || format == PtqFormat::fp8_block;
}

PtqOptions checked(const PtqOptions& options) {
  PtqOptions o = options;
  check_method(o);
  check_granularity(o);
  if (!(o.percentile > 50 && o.percentile <= 100)) {
    bad("percentile", "above 50 and at most 100, got {}", o.percentile);
  }
  if (!(o.damping > 0 && o.damping < 10)) bad("damping", "above 0 and below 10, got {}", o.damping);
  const bool is_gptq = o.method == PtqMethod::gptq;
  if (!o.weights) o.weights = is_gptq ? WeightScaling::group : WeightScaling::tensor;
  if (!o.activations) {
    // A direct cast has nothing to measure; INT8's is by the tensor at hand.
    const bool is_current = o.method == PtqMethod::direct && o.format == PtqFormat::int8;
    o.activations = is_gptq      ? ActivationScaling::none
                    : is_current ? ActivationScaling::tensor
                                 : ActivationScaling::fixed;
  } else if (*o.activations == ActivationScaling::tensor && o.method != PtqMethod::direct) {
    o.activations = ActivationScaling::fixed;
  }
  const bool has_fixed_scales =
      o.activations == ActivationScaling::fixed && !has_own_groups(o.format);
  if (o.residual && !has_fixed_scales) {
    bad("residual", "one fixed scale for each input, got {} with {}", enum_name(o.format),
        enum_name(o.method));
  }
  if (searches_exponents(o.method) && !o.target) o.target = ErrorTarget::unquantized;
  if (o.samples == 0) o.samples = is_gptq ? 128 : 8;
  return o;
}

}  // namespace octet
