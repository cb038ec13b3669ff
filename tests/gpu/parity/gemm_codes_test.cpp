// GEMMs that store E4M3 codes have those of a GEMM into f32 and a quantizer, where sums are exact.
#include <algorithm>
#include <cmath>

#include "passes/rewrite/simplify.h"
#include "table.h"

namespace octet::fusion {
namespace {

struct GemmShape {
  int64_t m, n, k;
};

// y = quantize(a b^T, 2^log2) in one node; a and b of whole numbers.
Graph gemm_graph(const GemmShape& shape, int log2) {
  Graph graph;
  Builder b(graph);
  graph.phase = Phase::typed;
  const auto input = [&](const char* name, const TensorType& type) {
    return b.input(InputKind::batch, name, type);
  };
  const ValueId a = input("a", {Dtype::e4m3, {shape.m, shape.k}});
  const ValueId w = input("w", {Dtype::e4m3, {shape.n, shape.k}});
  const ValueId scale_a = input("scale_a", {Dtype::f32, {}});
  const ValueId scale_w = input("scale_w", {Dtype::f32, {}});
  std::vector<ValueId> operands(op_def(OpCode::gemm).operands.size(), kNoValue);
  operands[Gemm::a] = a;
  operands[Gemm::b] = w;
  operands[Gemm::scale_a] = scale_a;
  operands[Gemm::scale_b] = scale_w;
  operands[Gemm::scale_y] = b.fill({}, std::exp2(log2));
  const GemmAttrs attrs{.trans_b = true, .role = GemmRole::forward, .fast_accumulate = true};
  b.output("y", b.emit1(OpCode::gemm, attrs, operands));
  graph.phase = Phase::lowered;
  return graph;
}

TEST(gemm_codes, are_those_of_a_wide_product_and_a_quantizer) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const GemmShape& shape : {GemmShape{16, 16, 16}, GemmShape{128, 256, 64},
                                 GemmShape{272, 48, 160}, GemmShape{1024, 1408, 512}}) {
    const auto n = [](int64_t i, int64_t mod) {
      return static_cast<double>((i * i + i / 7) % mod);
    };
    Tensors inputs{{"scale_a", {0.5}}, {"scale_w", {4.0}}};
    for (int64_t i = 0; i < shape.m * shape.k; ++i) inputs["a"].push_back(n(i, 7) - 3);
    for (int64_t i = 0; i < shape.n * shape.k; ++i) inputs["w"].push_back(n(i, 9) - 4);
    // From codes that saturate to small ones.
    for (const int log2 : {-8, -1, 3}) {
      const Graph graph = gemm_graph(shape, log2);
      const auto choice = gpu->catalogue->choose(graph, graph.nodes.back());
      ASSERT_TRUE(choice.has_value()) << print(graph);
      Graph apart = decompose(graph, [](const Graph&, const Node& node) {
        return node.in(Gemm::scale_y) != kNoValue && node.op == OpCode::gemm;
      });
      apart.phase = Phase::lowered;
      expect_same(run_plan(graph, inputs, *gpu), run_plan(apart, inputs, *gpu), print(graph));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace octet::fusion
