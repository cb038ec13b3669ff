// Gradients that are quantized where they are made have the codes, scales and histories of the ops
// that they stand for, in all bits.
#include "passes/rewrite/simplify.h"
#include "table.h"

namespace octet::fusion {
namespace {

enum class ScaleFrom : uint8_t { own, given, history, new_history };

constexpr int64_t kOne = -1;

struct GradientCase {
  Shape shape;
  int64_t group;  // of gate and up; 0: bf16; kOne: one scale for all
  Dtype format;
  ScaleFrom from;
};

OpCase op_case(const GradientCase& g) {
  GatedActQuantizeAttrs attrs;
  attrs.q = {.target = g.format == Dtype::e5m2 ? 57344.0 : 448.0};
  attrs.both = true;
  const OperandCase x = g.group == 0
                            ? tensor(g.shape)
                            : codes(g.shape, Dtype::e4m3, g.group == kOne ? "tensor" : "1x16");
  OperandCase s = g.group == 0 ? none() : scales_of(x);
  if (g.group == kOne) s = filled({}, Dtype::f32, 0.625), s.is_known = true;
  OpCase c{.name = "gated_act_grad_quantize",
           .op = OpCode::gated_act_grad_quantize,
           .attrs = attrs,
           .operands = {tensor(g.shape), x, x, s, s},
           .results = {g.format}};
  if (g.from == ScaleFrom::given) c.operands.push_back(scalar(0.01));
  if (g.from == ScaleFrom::history || g.from == ScaleFrom::new_history) {
    c.operands.push_back(none());
    c.operands.push_back(scales({5}));
  }
  c.typed_only = true;
  return c;
}

Tensors run_apart(const Graph& graph, const Tensors& inputs, Backend& gpu) {
  Graph apart = decompose(graph, [](const Graph&, const Node& node) {
    return node.op == OpCode::gated_act_grad_quantize;
  });
  apart.phase = Phase::lowered;
  return run_plan(apart, inputs, gpu);
}

void expect_same_bits(const GradientCase& g, bool is_bad, Backend& gpu) {
  const OpCase c = op_case(g);
  const Graph graph = case_graph(c, Dtype::bf16);
  const std::string what = print(graph);
  ASSERT_TRUE(gpu.catalogue->choose(graph, graph.nodes.back()).has_value()) << what;
  Tensors inputs = case_inputs(c, 3);
  if (is_bad) put_specials(inputs.begin()->second);
  if (g.from == ScaleFrom::new_history) {
    for (const GraphInput& input : graph.inputs) {
      if (graph.type(input.value).shape == Shape{5}) inputs.at(input.name).assign(5, 0.0);
    }
  }
  expect_same(run_plan(graph, inputs, gpu), run_apart(graph, inputs, gpu), what);
}

TEST(gradients, quantized_at_once_are_those_of_two_ops) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Shape& shape : {Shape{128, 128}, Shape{256, 384}, Shape{300, 208}, Shape{17, 48},
                             Shape{1, 16}, Shape{2048, 1408}}) {
    for (const int64_t group : {int64_t{0}, int64_t{16}, kOne}) {
      for (const Dtype format : {Dtype::e5m2, Dtype::e4m3}) {
        for (const ScaleFrom from :
             {ScaleFrom::own, ScaleFrom::given, ScaleFrom::history, ScaleFrom::new_history}) {
          expect_same_bits({shape, group, format, from}, false, *gpu);
          expect_same_bits({shape, group, format, from}, true, *gpu);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octet::fusion
