#include "runtime/layer_maximum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "formats/codec.h"
#include "ir/op_def.h"
#include "ir/ops/quantize_layers.h"

namespace octet {
namespace {

using Reader = std::function<std::vector<std::byte>(ValueId)>;

class LayerOperands {
 public:
  LayerOperands(const Graph& graph, const Node& node, const Reader& read)
      : graph_(graph), node_(node), read_(read) {}

  std::vector<float> values(SlotId slot) const {
    const ValueId id = node_.in(slot);
    return id == kNoValue ? std::vector<float>() : values_of(graph_.type(id).dtype, read_(id));
  }

  // An operand that may be quantized.
  std::vector<float> stored(SlotId slot, SlotId scale_slot) const {
    std::vector<float> x = values(slot);
    const TensorType& type = graph_.type(node_.in(slot));
    if (!type.is_scaled()) return x;
    const std::vector<float> scales = values(scale_slot);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scales[scale_index(type, i)];
    return x;
  }

  int64_t cols() const { return std::max<int64_t>(1, graph_.type(node_.in(0)).shape.back()); }

 private:
  const Graph& graph_;
  const Node& node_;
  const Reader& read_;
};

class Maximum {
 public:
  void add(double y) {
    if (std::isfinite(y)) largest_ = std::max(largest_, std::fabs(y));
  }
  double value() const { return largest_; }

 private:
  double largest_ = 0;
};

double rms_norm_maximum(const LayerOperands& of, double eps) {
  const auto x = of.stored(RmsNorm::x, RmsNorm::x_scale), weight = of.values(RmsNorm::weight);
  const auto cols = static_cast<size_t>(of.cols());
  Maximum maximum;
  for (size_t row = 0; row + cols <= x.size(); row += cols) {
    double squares = 0;
    for (size_t c = 0; c < cols; ++c) squares += static_cast<double>(x[row + c]) * x[row + c];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(cols) + eps);
    for (size_t c = 0; c < cols; ++c)
      maximum.add(static_cast<double>(x[row + c]) * rstd * (weight.empty() ? 1 : weight[c]));
  }
  return maximum.value();
}

double layer_norm_maximum(const LayerOperands& of, double eps) {
  const auto x = of.stored(LayerNorm::x, LayerNorm::x_scale);
  const auto weight = of.values(LayerNorm::weight), bias = of.values(LayerNorm::bias);
  const auto cols = static_cast<size_t>(of.cols());
  Maximum maximum;
  for (size_t row = 0; row + cols <= x.size(); row += cols) {
    double sum = 0, squares = 0;
    for (size_t c = 0; c < cols; ++c) sum += x[row + c];
    const double mean = sum / static_cast<double>(cols);
    for (size_t c = 0; c < cols; ++c) squares += (x[row + c] - mean) * (x[row + c] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(cols) + eps);
    for (size_t c = 0; c < cols; ++c) {
      const double y = (x[row + c] - mean) * rstd * (weight.empty() ? 1 : weight[c]);
      maximum.add(y + (bias.empty() ? 0 : bias[c]));
    }
  }
  return maximum.value();
}

double gated_act_maximum(const LayerOperands& of) {
  const auto gate = of.stored(GatedAct::gate, GatedAct::gate_scale);
  const auto up = of.stored(GatedAct::up, GatedAct::up_scale);
  Maximum maximum;
  for (size_t i = 0; i < std::min(gate.size(), up.size()); ++i) {
    const double g = gate[i];
    maximum.add(g / (1 + std::exp(-g)) * up[i]);
  }
  return maximum.value();
}

double gelu_maximum(const LayerOperands& of) {
  // The two kinds differ by less than a rounding of eight bits.
  const auto values = of.stored(Gelu::x, Gelu::x_scale);
  Maximum maximum;
  for (const double x : values) maximum.add(0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)));
  return maximum.value();
}

}  // namespace

std::vector<float> values_of(Dtype dtype, std::span<const std::byte> bytes) {
  const auto width = static_cast<size_t>(bytes_of(dtype, 1));
  std::vector<float> values(bytes.size() / width);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t code = 0;
    std::memcpy(&code, bytes.data() + i * width, width);
    values[i] = dtype == Dtype::f32 ? std::bit_cast<float>(code) : decode(dtype, code);
  }
  return values;
}

std::optional<double> layer_maximum(const Graph& graph, const Node& node, const Reader& read) {
  const QuantizedLayer* op = quantized_layer(node.op);
  if (op == nullptr) return std::nullopt;
  const Attrs layer = split(node.attrs).layer;
  const LayerOperands of(graph, node, read);
  switch (op->layer) {
    case OpCode::rms_norm:
      return rms_norm_maximum(of, std::get<NormAttrs>(layer).eps);
    case OpCode::layer_norm:
      return layer_norm_maximum(of, std::get<NormAttrs>(layer).eps);
    case OpCode::gated_act:
      return gated_act_maximum(of);
    case OpCode::gelu:
      return gelu_maximum(of);
    default:
      return std::nullopt;
  }
}

}  // namespace octet
