// Every rule's prediction against what normals give: the RMS of an op's result within 10 %.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/reference/reference.h"
#include "base/philox.h"
#include "passes/scalify/scalify.h"

namespace octet::scalify_predictions_test {
namespace {

using reference::Tensors;

double log2_rms(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x * x;
  return 0.5 * std::log2(sum / static_cast<double>(values.size()));
}

// A graph of one op on normals of these RMS.
class OneOp {
 public:
  OneOp() : b(graph_) {}

  Builder& builder() { return b; }
  ValueId normals(const Shape& shape, double log2) {
    const std::string name = "x" + std::to_string(inputs_.size());
    std::vector<double>& values = inputs_[name];
    const RandomStream random{.name = name_hash(name)};
    for (int64_t i = 0; i < n_elems(shape); ++i) {
      double sum = -6;  // of twelve uniforms
      for (uint64_t k = 0; k < 12; ++k) {
        sum += static_cast<double>(random.bits(static_cast<uint64_t>(i) * 12 + k)) / 4294967296.0;
      }
      values.push_back(std::ldexp(sum, 0) * std::exp2(log2));
    }
    options_.input_rms[name] = log2;
    return b.input(InputKind::parameter, name, real_type(shape));
  }
  ValueId ids(const Shape& shape, int64_t below) {
    const std::string name = "x" + std::to_string(inputs_.size());
    const RandomStream random{.name = name_hash(name)};
    for (int64_t i = 0; i < n_elems(shape); ++i)
      inputs_[name].push_back(static_cast<double>(random.bits(static_cast<uint64_t>(i)) %
                                                  static_cast<uint64_t>(below)));
    return b.input(InputKind::batch, name, index_type(shape));
  }

  void expect(ValueId y, const std::string& what, double tolerance = 0.1) {
    b.output("y", y);
    const Scalified scaled = scalify(graph_, options_);
    const ValueId id = scaled.graph.find_output("y")->value;
    const double predicted = scaled.data_rms[static_cast<size_t>(id)];
    const double measured = log2_rms(reference::interpret(scaled.graph, inputs_).at("y"));
    EXPECT_NEAR(std::exp2(measured - predicted), 1, tolerance)
        << what << ": predicted 2^" << predicted << ", measured 2^" << measured;
  }

 private:
  Graph graph_;
  Builder b;
  Tensors inputs_;
  ScalifyOptions options_;
};

TEST(ScalePredictions, primitives) {
  const Shape shape = {64, 96};
  {
    OneOp op;
    op.expect(op.builder().add(op.normals(shape, -3), op.normals(shape, -4)), "add");
  }
  {
    OneOp op;
    op.expect(op.builder().mul(op.normals(shape, -3), op.normals(shape, 5)), "mul");
  }
  {
    OneOp op;
    op.expect(op.builder().unary(OpCode::square, op.normals(shape, 2)), "square");
  }
  {
    OneOp op;
    op.expect(op.builder().reduce_sum(op.normals(shape, -7), {1}), "reduce_sum", 0.25);
  }
  {
    OneOp op;
    const DotAttrs dot{{0}, {0}, {2}, {1}};
    op.expect(op.builder().emit1(OpCode::dot, dot,
                                 {op.normals({3, 40, 50}, -6), op.normals({3, 50, 60}, 4)}),
              "dot");
  }
  {
    OneOp op;
    const ValueId x = op.normals({4000, 8}, -6);
    op.expect(op.builder().emit1(OpCode::scatter_add, ScatterAddAttrs{.rows = 50},
                                 {x, op.ids({4000}, 50)}),
              "scatter_add", 0.25);
  }
}

TEST(ScalePredictions, linears_and_norms) {
  {
    OneOp op;
    op.expect(
        op.builder().gemm(op.normals({64, 128}, 3), op.normals({80, 128}, -5.6), {.trans_b = true}),
        "gemm");
  }
  {
    OneOp op;
    op.expect(op.builder().emit1(OpCode::bias_add, NoAttrs{},
                                 {op.normals({64, 128}, 1), op.normals({128}, 0)}),
              "bias_add");
  }
  {
    OneOp op;
    op.expect(op.builder().unary(OpCode::column_sum, op.normals({400, 300}, -9)), "column_sum",
              0.15);
  }
  for (const double size : {-5.0, 0.0, 4.0}) {
    OneOp op;
    const ValueId x = op.normals({64, 128}, size), w = op.normals({128}, 0);
    op.expect(op.builder().emit(OpCode::rms_norm, NormAttrs{}, {x, w})[0], "rms_norm");
    OneOp back;
    const ValueId dy = back.normals({64, 128}, -8), x2 = back.normals({64, 128}, size);
    const ValueId w2 = back.normals({128}, 1);
    const auto y = back.builder().emit(OpCode::rms_norm, NormAttrs{}, {x2, w2});
    back.expect(back.builder().emit(OpCode::rms_norm_grad, NormAttrs{}, {dy, x2, y[1], w2})[0],
                "rms_norm_grad");
    OneOp layer;
    const ValueId x3 = layer.normals({64, 128}, size), w3 = layer.normals({128}, 0);
    layer.expect(layer.builder().emit(OpCode::layer_norm, NormAttrs{}, {x3, w3})[0], "layer_norm");
    OneOp layer_back;
    const ValueId dy4 = layer_back.normals({64, 128}, -8);
    const ValueId x4 = layer_back.normals({64, 128}, size), w4 = layer_back.normals({128}, 1);
    const auto y4 = layer_back.builder().emit(OpCode::layer_norm, NormAttrs{}, {x4, w4});
    layer_back.expect(layer_back.builder().emit(OpCode::layer_norm_grad, NormAttrs{},
                                                {dy4, x4, y4[1], y4[2], w4})[1],
                      "layer_norm_grad, weight", 0.15);
  }
}

TEST(ScalePredictions, activations) {
  for (const double size : {-5.0, -1.0, 0.0, 2.0}) {
    const Shape shape = {64, 96};
    OneOp gelu;
    gelu.expect(gelu.builder().emit1(OpCode::gelu, GeluAttrs{}, {gelu.normals(shape, size)}),
                "gelu");
    OneOp gelu_back;
    gelu_back.expect(
        gelu_back.builder().emit(OpCode::gelu_grad, GeluAttrs{},
                                 {gelu_back.normals(shape, -9), gelu_back.normals(shape, size)})[0],
        "gelu_grad");
    OneOp gated;
    gated.expect(gated.builder().emit1(OpCode::gated_act, GatedActAttrs{},
                                       {gated.normals(shape, size), gated.normals(shape, -2)}),
                 "gated_act");
    for (const size_t result : {0, 1}) {
      OneOp back;
      const ValueId dy = back.normals(shape, -9), gate = back.normals(shape, size),
                    up = back.normals(shape, -2);
      back.expect(
          back.builder().emit(OpCode::gated_act_grad, GatedActAttrs{}, {dy, gate, up})[result],
          "gated_act_grad");
    }
  }
}

// Scores near 0, as at initialisation.
TEST(ScalePredictions, attention_and_loss) {
  AttentionAttrs a{.batch = 2,
                   .q_len = 64,
                   .kv_len = 64,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .scale = 0.25};
  for (const AttentionMask mask : {AttentionMask::causal, AttentionMask::full}) {
    a.mask = mask;
    OneOp op;
    const ValueId q = op.normals({128, 64}, -4), k = op.normals({128, 32}, -4),
                  v = op.normals({128, 32}, 3);
    op.expect(op.builder().emit(OpCode::attention, a, {q, k, v})[0], "attention", 0.15);
    for (const size_t result : {0, 1, 2}) {
      OneOp back;
      const ValueId dout = back.normals({128, 64}, -6), q2 = back.normals({128, 64}, -4);
      const ValueId k2 = back.normals({128, 32}, -4), v2 = back.normals({128, 32}, 3);
      const auto o = back.builder().emit(OpCode::attention, a, {q2, k2, v2});
      back.expect(
          back.builder().emit(OpCode::attention_grad, a, {dout, q2, k2, v2, o[0], o[1]})[result],
          "attention_grad " + std::to_string(result), 0.35);
    }
  }
  OneOp loss;
  const ValueId logits = loss.normals({64, 200}, -4);
  const ValueId labels = loss.ids({64}, 200);
  const ValueId inv_n = loss.builder().fill({}, 1.0 / 64), one = loss.builder().fill({}, 1);
  const auto forward =
      loss.builder().emit(OpCode::cross_entropy, CrossEntropyAttrs{}, {logits, labels, inv_n});
  loss.expect(loss.builder().emit1(OpCode::cross_entropy_grad, CrossEntropyAttrs{},
                                   {one, logits, labels, forward[1], inv_n}),
              "cross_entropy_grad");
}

}  // namespace
}  // namespace octet::scalify_predictions_test
