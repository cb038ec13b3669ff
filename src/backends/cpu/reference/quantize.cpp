// Quantizers in formats/quantize.h's f32 arithmetic. Codes are held as the numbers that they decode
// to.
#include "formats/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backends/cpu/quantize/quantize_blocks.h"
#include "backends/cpu/reference/kernels.h"
#include "base/philox.h"
#include "formats/full_int8.h"

namespace octet::reference {
namespace {

Quantizer quantizer(const AmaxScaleAttrs& a, const ResultType& codes) {
  Quantizer q = linear_quantizer(codes.dtype, codes.granularity);
  q.amax_target = static_cast<float>(a.target);
  q.rule = a.rule;
  q.scale_type = codes.granularity.scale;
  return q;
}

// Scale of a tensor, whatever its codes are.
float tensor_scale(const Attrs& attrs, double amax) {
  const auto& a = std::get<AmaxScaleAttrs>(attrs);
  return scale_from_amax(quantizer(a, Dtype::e4m3), static_cast<float>(amax));
}

// Random words of a quantizer that rounds stochastically; of others nobody reads them.
RandomStream stream_of(const QuantizeAttrs& a, const RefCall& call) {
  if (call.in.size() <= Quantize::draw) return drawn_stream(a.stream, nullptr);
  std::array<uint32_t, 3> draw = {};
  std::ranges::transform(call.in[Quantize::draw].data, draw.begin(),
                         [](double word) { return static_cast<uint32_t>(word); });
  return drawn_stream(a.stream, draw.data());
}

double code_value(const QuantizeAttrs& a, Dtype dtype, float scaled, uint32_t random_bits = 0) {
  if (a.limit > 0 && !(std::abs(scaled) <= static_cast<float>(a.limit)))
    scaled = std::numeric_limits<float>::quiet_NaN();
  if (dtype == Dtype::int8 && a.target == kFullInt8Target)
    return static_cast<double>(decode(dtype, encode_full_int8(scaled)));
  return static_cast<double>(decode(
      dtype, encode(dtype, scaled, a.rounding, {.random_bits = random_bits, .source = a.source})));
}

MatrixShape matrix(const Shape& shape) {
  const int64_t cols = shape.empty() ? 1 : shape.back();
  return {cols == 0 ? 0 : n_elems(shape) / cols, cols};
}

void quantize_rows(const QuantizeAttrs& a, const RefCall& call, const RefTensor& out) {
  const float inv_scale = 1.0f / static_cast<float>(call.in[1].data[0]);
  const RandomStream random = stream_of(a, call);
  for (size_t i = 0; i < out.data.size(); ++i) {
    const float scaled = static_cast<float>(call.in[0].data[i]) * inv_scale;
    out.data[i] = code_value(a, out.type.dtype, scaled, random.bits(i));
  }
}

// [R, C] -> [C, padded R]
void quantize_transposed(const QuantizeAttrs& a, const RefCall& call, const RefTensor& out) {
  const float inv_scale = 1.0f / static_cast<float>(call.in[1].data[0]);
  const size_t rows = dim(call.in[0], 0), cols = dim(call.in[0], 1);
  const size_t padded = size(out.type.stored_shape()[1]);
  const RandomStream random = stream_of(a, call);
  std::fill(out.data.begin(), out.data.end(), 0.0);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      const size_t i = r * cols + c;
      const float scaled = static_cast<float>(call.in[0].data[i]) * inv_scale;
      out.data[c * padded + r] = code_value(a, out.type.dtype, scaled, random.bits(i));
    }
  }
}

void quantize_matrix(const QuantizeAttrs& a, const RefCall& call, const RefTensor& out) {
  out.type.layout.transposed ? quantize_transposed(a, call, out) : quantize_rows(a, call, out);
}

void quantize_in_blocks(const QuantizeAttrs& a, const RefTensor& x, std::span<RefTensor> out) {
  const TensorType& type = out[0].type;
  std::vector<Amax> maxima(out[1].data.size());
  for (size_t i = 0; i < x.data.size(); ++i) {
    Amax& group = maxima[scale_index(type, i)];
    group = join(group, amax_of(static_cast<float>(x.data[i])));
  }
  const Quantizer q = quantizer(scale_attrs(a), ResultType(type));
  for (size_t i = 0; i < maxima.size(); ++i) out[1].data[i] = scale_from_amax(q, maxima[i].value);
  for (size_t i = 0; i < x.data.size(); ++i) {
    const float inv_scale = 1.0f / static_cast<float>(out[1].data[scale_index(type, i)]);
    out[0].data[i] = code_value(a, type.dtype, static_cast<float>(x.data[i]) * inv_scale);
  }
}

void quantize_in_groups(const QuantizeAttrs& a, const RefTensor& x, std::span<RefTensor> out) {
  const TensorType& type = out[0].type;
  if (!type.has(Granularity::Kind::group)) return quantize_in_blocks(a, x, out);
  const std::vector<float> values(x.data.begin(), x.data.end());
  std::vector<uint8_t> codes(values.size());
  std::vector<float> scales(out[1].data.size());
  octet::quantize(quantizer(scale_attrs(a), ResultType(type)), matrix(x.type.shape), values, codes,
                  scales);
  for (size_t i = 0; i < codes.size(); ++i) out[0].data[i] = decode(type.dtype, codes[i]);
  std::copy(scales.begin(), scales.end(), out[1].data.begin());
}

}  // namespace

void amax(const RefCall& call) {
  Amax all;
  for (const RefTensor& x : call.in) {
    if (x.type.dtype == Dtype::boolean) {
      all.nonfinite = all.nonfinite || x.data[0] != 0;
      continue;
    }
    for (const double e : x.data) all = join(all, amax_of(static_cast<float>(e)));
  }
  call.out[0].data[0] = all.value;
  call.out[1].data[0] = all.nonfinite ? 1 : 0;
}

void any_of(const RefCall& call) {
  bool any = false;
  for (const RefTensor& flag : call.in) {
    for (const double e : flag.data) any = any || e != 0;
  }
  call.out[0].data[0] = any ? 1 : 0;
}

void quant_scale(const RefCall& call) {
  call.out[0].data[0] = tensor_scale(call.attrs, call.in[0].data[0]);
}

// The history is a line: its first entry, the oldest, leaves, and amax joins at the end.
void delayed_scale(const RefCall& call) {
  const auto history = call.in[1].data, next = call.out[1].data;
  const auto now = static_cast<float>(call.in[0].data[0]);
  float largest = 0;
  for (const double e : history) largest = std::max(largest, static_cast<float>(e));
  call.out[0].data[0] = tensor_scale(call.attrs, largest > 0 ? largest : now);
  for (size_t i = 0; i + 1 < history.size(); ++i) next[i] = history[i + 1];
  if (!next.empty()) next.back() = now;
}

void quantize(const RefCall& call) {
  const auto& a = std::get<QuantizeAttrs>(call.attrs);
  quantize_matrix(a, call, call.out[0]);
}

void quantize_groups(const RefCall& call) {
  quantize_in_groups(std::get<QuantizeAttrs>(call.attrs), call.in[0], call.out);
}

void fake_quantize(const RefCall& call) {
  const auto& a = std::get<FakeQuantizeAttrs>(call.attrs);
  const RefTensor& x = call.in[Unary::x];
  const MatrixShape shape = matrix(x.type.shape);
  const Quantizer groups = cpu::fake_quantizer(a, shape.cols);
  std::vector<float> values(x.data.begin(), x.data.end());
  std::vector<uint8_t> q(values.size());
  std::vector<float> scales(static_cast<size_t>(scale_shape(shape, groups.granularity).n_elems()));
  octet::quantize(groups, shape, values, q, scales);
  octet::dequantize(groups, shape, q, scales, values);
  std::copy(values.begin(), values.end(), call.out[Unary::y].data.begin());
}

void dequantize(const RefCall& call) {
  const RefTensor& codes = call.in[0];
  for (size_t i = 0; i < codes.data.size(); ++i) {
    const auto scale = static_cast<float>(call.in[1].data[scale_index(codes.type, i)]);
    call.out[0].data[i] = static_cast<float>(codes.data[i]) * scale;
  }
}

}  // namespace octet::reference
