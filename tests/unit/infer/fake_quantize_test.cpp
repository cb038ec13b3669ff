#include "infer/fake_quantize_inputs.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/precision/store_frozen.h"

namespace octet::infer_fake_quantize_test {
namespace {

// Two linears that read one value, and a residual sum.
Graph small_graph() {
  Graph graph;
  graph.phase = Phase::typed;
  Builder b(graph);
  const auto matrix = [](int64_t rows, int64_t cols) {
    return TensorType{.dtype = Dtype::f32, .shape = {rows, cols}};
  };
  const ValueId x = b.input(InputKind::batch, "x", matrix(3, 8));
  const ValueId q = b.input(InputKind::parameter, "q.weight", matrix(8, 8));
  const ValueId k = b.input(InputKind::parameter, "k.weight", matrix(8, 8));
  b.tag = {.layer = 2, .origin = "q_proj"};
  const ValueId y = b.gemm(x, q, {.trans_b = true, .role = GemmRole::forward});
  const ValueId z = b.gemm(x, k, {.trans_b = true, .role = GemmRole::forward});
  b.tag.origin = "residual";
  b.output("y", b.add(x, b.add(y, z)));
  return graph;
}

int count(const Graph& graph, OpCode op) {
  int n = 0;
  for (const Node& node : graph.nodes) n += node.op == op ? 1 : 0;
  return n;
}

TEST(FakeQuantizeInputs, makes_what_is_the_same_once) {
  const ActivationQuantizer rows{.dtype = Dtype::int8, .target = 127, .group = kWholeRow};
  const Graph graph =
      fake_quantize_inputs(small_graph(), {.linears = {{"q.weight", rows}, {"k.weight", rows}}});
  verify(graph);
  EXPECT_EQ(count(graph, OpCode::fake_quantize), 1);
  EXPECT_EQ(graph.nodes.front().tag.layer, 2);
  EXPECT_EQ(parse_graph(print(graph)), graph);
}

TEST(FakeQuantizeInputs, of_fixed_scales_are_quantize_and_dequantize) {
  const ActivationQuantizer a{.dtype = Dtype::hif8, .scale = 0.5f};
  const ActivationQuantizer b{.dtype = Dtype::hif8, .scale = 0.25f};
  const Graph graph =
      fake_quantize_inputs(small_graph(), {.linears = {{"q.weight", a}, {"k.weight", b}}});
  verify(graph);
  EXPECT_EQ(count(graph, OpCode::quantize), 2);
  EXPECT_EQ(count(graph, OpCode::dequantize), 2);
  EXPECT_EQ(std::get<FillAttrs>(graph.nodes.front().attrs).value, 0.5);
}

TEST(FakeQuantizeInputs, of_residual_sums_are_found_by_their_place) {
  const ActivationQuantizer scaled{.dtype = Dtype::e4m3, .scale = 1.0f};
  const Graph graph = fake_quantize_inputs(
      small_graph(), {.residuals = {{residual_name("layers.2", 0, 'b'), scaled},
                                    {residual_name("layers.2", 1, 'a'), scaled},
                                    {residual_name("layers.2", 1, 'b'), scaled}}});
  verify(graph);
  EXPECT_EQ(count(graph, OpCode::quantize), 3);
}

TEST(FakeQuantizeInputs, are_those_of_weights_that_are_kept_in_another_type) {
  Graph graph = small_graph();
  for (GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::parameter) input.kind = InputKind::constant;
  }
  const ActivationQuantizer scaled{.dtype = Dtype::e4m3, .scale = 1.0f};
  for (const FrozenFormat format :
       {FrozenFormat::e4m3, FrozenFormat::e4m3_blocks, FrozenFormat::hif8, FrozenFormat::bf16}) {
    const Graph quantized = fake_quantize_inputs(
        store_frozen(graph, format),
        {.linears = {{"q.weight", scaled}, {"k.weight", scaled}}, .residuals = {}});
    verify(quantized);
    EXPECT_EQ(count(quantized, OpCode::quantize), 1) << enum_name(format);
  }
}

TEST(FakeQuantizeInputs, that_the_model_lacks_are_refused) {
  EXPECT_THROW(fake_quantize_inputs(small_graph(), {.linears = {{"v.weight", {}}}}), Error);
  EXPECT_THROW(
      fake_quantize_inputs(small_graph(), {.residuals = {{residual_name("layers.1", 0, 'a'), {}}}}),
      Error);
}

}  // namespace
}  // namespace octet::infer_fake_quantize_test
