#include "runtime/layer_maximum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "formats/arrays.h"
#include "ir/op_def.h"
#include "ir/ops/quantize_layers.h"
#include "runtime/magnitudes.h"

namespace octet {
namespace {

constexpr size_t kPieceRows = 64, kPieceElements = 1 << 14;

class LayerOperands {
 public:
  LayerOperands(const Graph& graph, const Node& node, const ValueReader& read)
      : graph_(graph), node_(node), read_(read) {}

  std::vector<float> values(SlotId slot) const {
    const ValueId id = node_.in(slot);
    return id == kNoValue ? std::vector<float>() : decode_values(graph_.type(id).dtype, read_(id));
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
  const ValueReader& read_;
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

// RMSNorm is LayerNorm of rows that are taken to have the mean 0.
template <typename Op>
double norm_maximum(const LayerOperands& of, double eps, ThreadPool& pool) {
  constexpr bool kCentred = requires {
    Op::bias;
  };
  const auto x = of.stored(Op::x, Op::x_scale), weight = of.values(Op::weight);
  std::vector<float> bias;
  if constexpr (kCentred) bias = of.values(Op::bias);
  const auto cols = static_cast<size_t>(of.cols());
  return largest_of_pieces(pool, x.size() / cols, kPieceRows, [&](size_t first, size_t end) {
    Maximum maximum;
    for (size_t row = first * cols; row < end * cols; row += cols) {
      double sum = 0, squares = 0;
      for (size_t c = 0; c < cols && kCentred; ++c) sum += x[row + c];
      const double mean = sum / static_cast<double>(cols);
      for (size_t c = 0; c < cols; ++c) squares += (x[row + c] - mean) * (x[row + c] - mean);
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(cols) + eps);
      for (size_t c = 0; c < cols; ++c) {
        const double y = (x[row + c] - mean) * rstd * (weight.empty() ? 1 : weight[c]);
        maximum.add(y + (bias.empty() ? 0 : bias[c]));
      }
    }
    return maximum.value();
  });
}

// Over the elements of [0, n).
template <typename Value>
double elements_maximum(size_t n, ThreadPool& pool, const Value& value) {
  return largest_of_pieces(pool, n, kPieceElements, [&](size_t first, size_t end) {
    Maximum maximum;
    for (size_t i = first; i < end; ++i) maximum.add(value(i));
    return maximum.value();
  });
}

double gated_act_maximum(const LayerOperands& of, ThreadPool& pool) {
  const auto gate = of.stored(GatedAct::gate, GatedAct::gate_scale);
  const auto up = of.stored(GatedAct::up, GatedAct::up_scale);
  return elements_maximum(std::min(gate.size(), up.size()), pool, [&](size_t i) {
    const double g = gate[i];
    return g / (1 + std::exp(-g)) * up[i];
  });
}

double gelu_maximum(const LayerOperands& of, ThreadPool& pool) {
  // The two kinds differ by less than a rounding of eight bits.
  const auto values = of.stored(Gelu::x, Gelu::x_scale);
  return elements_maximum(values.size(), pool, [&](size_t i) {
    const double x = values[i];
    return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  });
}

}  // namespace

std::optional<double> layer_maximum(const Graph& graph, const Node& node, const ValueReader& read,
                                    ThreadPool& pool) {
  const QuantizedLayer* op = quantized_layer(node.op);
  if (op == nullptr) return std::nullopt;
  const Attrs layer = split(node.attrs).layer;
  const LayerOperands of(graph, node, read);
  if (const auto* norm = std::get_if<NormAttrs>(&layer)) {
    return op_def(op->layer).is_centred ? norm_maximum<LayerNorm>(of, norm->eps, pool)
                                        : norm_maximum<RmsNorm>(of, norm->eps, pool);
  }
  if (op_def(op->layer).is_gradient) return std::nullopt;
  if (std::holds_alternative<GatedActAttrs>(layer)) return gated_act_maximum(of, pool);
  return gelu_maximum(of, pool);
}

}  // namespace octet
