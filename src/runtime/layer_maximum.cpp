#include "runtime/layer_maximum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "formats/arrays.h"
#include "ir/op_def.h"
#include "ir/ops/quantize_layers.h"
#include "math/row_layers.h"
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
  std::vector<float> stored(ScalePlace place) const {
    std::vector<float> x = values(place.operand);
    const TensorType& type = graph_.type(node_.in(place.operand));
    if (!type.is_scaled()) return x;
    const std::vector<float> scales = values(place.scale);
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
template <bool kCentred>
double norm_maximum(const LayerOperands& of, const OpDef& op, double eps, ThreadPool& pool) {
  const auto x = of.stored(op.scales[0]);
  const auto weight = of.values(op.norm.weight), bias = of.values(op.norm.bias);
  const auto cols = static_cast<size_t>(of.cols());
  const auto n_cols = static_cast<double>(cols);
  return largest_of_pieces(pool, x.size() / cols, kPieceRows, [&](size_t first, size_t end) {
    Maximum maximum;
    for (size_t row = first * cols; row < end * cols; row += cols) {
      double sum = 0, squares = 0;
      for (size_t c = 0; c < cols && kCentred; ++c) sum += x[row + c];
      const double mean = sum / n_cols;
      for (size_t c = 0; c < cols; ++c) squares += (x[row + c] - mean) * (x[row + c] - mean);
      const RowStatistics<double> statistics{mean, rstd_of(squares, n_cols, eps)};
      for (size_t c = 0; c < cols; ++c) {
        const double y = normalized<kCentred, double>(x[row + c], statistics);
        maximum.add(y * (weight.empty() ? 1 : weight[c]) + (bias.empty() ? 0 : bias[c]));
      }
    }
    return maximum.value();
  });
}

// Of elements by themselves.
double activation_maximum(const LayerOperands& of, const OpDef& op, RowLayer layer,
                          ThreadPool& pool) {
  const bool gated = op.scales.size() > 1;
  const auto x = of.stored(op.scales[0]);
  std::vector<float> up;
  if (gated) up = of.stored(op.scales[1]);
  const size_t n = gated ? std::min(x.size(), up.size()) : x.size();
  return largest_of_pieces(pool, n, kPieceElements, [&](size_t first, size_t end) {
    Maximum maximum;
    for (size_t i = first; i < end; ++i) maximum.add(activation(layer, x[i], gated ? up[i] : 0));
    return maximum.value();
  });
}

}  // namespace

std::optional<double> layer_maximum(const Graph& graph, const Node& node, const ValueReader& read,
                                    ThreadPool& pool) {
  const OpDef* layer = quantized_layer(node.op);
  if (layer == nullptr) return std::nullopt;
  const OpDef& op = op_def(node.op);
  const Attrs attrs = split(node.attrs).layer;
  const LayerOperands of(graph, node, read);
  if (!layer->is_norm) return activation_maximum(of, op, row_layer(layer->code, attrs), pool);
  const double eps = std::get<NormAttrs>(attrs).eps;
  return op.is_centred() ? norm_maximum<true>(of, op, eps, pool)
                         : norm_maximum<false>(of, op, eps, pool);
}

}  // namespace octet
