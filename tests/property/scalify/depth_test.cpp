// Deep models at initialisation: with predicted scales the operands of every GEMM are where FP16
// keeps its precision, forward and backward, without any statistics. Weights lie at their own scale
// (residual projections of 24 layers at 2^-8.4); all other operands are within [2^-8, 2^3].
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/reference/reference.h"
#include "base/philox.h"
#include "passes/autodiff.h"
#include "passes/rewrite/simplify.h"
#include "passes/scalify/scalify.h"
#include "property/recipes/tiny_training.h"
#include "runtime/edge_statistics.h"

namespace octet::scalify_depth_test {
namespace {

using reference::Tensors;

ModelSpec deep(int64_t layers) {
  return resolved({.kind = ModelKind::gpt2,
                   .hidden = 48,
                   .layers = layers,
                   .heads = 4,
                   .ffn = 192,
                   .vocab = 2000,
                   .max_positions = 32});
}

constexpr BatchSize kSize{.batch = 2, .seq = 32};

// Initial weights, and tokens of which the k-th is 1 / k as frequent as the first (Zipf).
Tensors inputs_of(const Graph& graph, const ModelSpec& spec) {
  Tensors inputs;
  for (const ParameterSpec& parameter : model_parameters(spec)) {
    const std::vector<float> values = initial_values(parameter, 1);
    inputs[parameter.name].assign(values.begin(), values.end());
  }
  const RandomStream random{.name = name_hash("zipf")};
  for (const GraphInput& input : graph.inputs) {
    std::vector<double>& values = inputs[input.name];
    const TensorType& type = graph.type(input.value);
    for (int64_t i = static_cast<int64_t>(values.size()); i < type.n_elems(); ++i) {
      const double u = static_cast<double>(random.bits(static_cast<uint64_t>(i))) / 4294967296.0;
      const double token = std::floor(std::pow(static_cast<double>(spec.vocab), u)) - 1;
      values.push_back(is_float(type.dtype) ? 1.0 / static_cast<double>(kSize.batch * kSize.seq)
                       : input.name == "positions" ? static_cast<double>(i % kSize.seq)
                                                   : token);
    }
  }
  return inputs;
}

struct Range {
  double low = 1e9, high = -1e9;
};

// Range of log2 RMS of the data of all GEMMs' operands and results.
Range gemm_data(int64_t layers, ScaleRounding rounding) {
  const ModelSpec spec = deep(layers);
  const Graph graph = simplify(autodiff(forward_builder(spec)(kSize, ForwardKind::loss)));
  ScalifyOptions options{.rounding = rounding};
  for (const ParameterSpec& p : model_parameters(spec))
    options.input_rms[p.name] = p.init == Init::normal ? std::log2(p.std)
                                : p.init == Init::ones ? 0
                                                       : -INFINITY;
  Graph scaled = scalify(graph, options).graph;
  scaled.outputs.clear();
  for (const Node& node : scaled.nodes) {
    if (node.op != OpCode::gemm) continue;
    for (const ValueId id : {node.in(Gemm::a), node.in(Gemm::b)})
      scaled.outputs.push_back({.name = std::to_string(scaled.outputs.size()), .value = id});
  }
  Range range;
  for (const auto& [name, values] : reference::interpret(scaled, inputs_of(graph, spec))) {
    double sum = 0;
    for (const double x : values) sum += x * x;
    const double log2 = 0.5 * std::log2(sum / static_cast<double>(values.size()));
    range.low = std::min(range.low, log2), range.high = std::max(range.high, log2);
  }
  return range;
}

TEST(ScalifyDepth, every_operand_is_in_the_window_of_fp16) {
  const FormatWindow window = *format_window(Dtype::fp16);
  for (const auto rounding :
       {ScaleRounding::predicted, ScaleRounding::nearest, ScaleRounding::paper}) {
    for (const int64_t layers : {8, 24}) {
      const Range range = gemm_data(layers, rounding);
      EXPECT_GE(range.low, window.low) << layers << " " << static_cast<int>(rounding);
      EXPECT_LE(range.high, window.high) << layers << " " << static_cast<int>(rounding);
    }
  }
}

}  // namespace
}  // namespace octet::scalify_depth_test
