// Every op that has a decomposition and a reference kernel equals it, case by case; one that is
// composed is it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/verify.h"
#include "op_cases/op_cases.h"
#include "passes/rewrite/simplify.h"
#include "property/fusion/run.h"

namespace octet::gradients_decompositions_test {
namespace {

using op_cases::OpCase;
using reference::Tensors;

bool has_remainder(const OpCase& c) {
  return c.op == OpCode::adamw_step && c.operands.size() > 9;
}

// The optimizer's op computes in f32 whatever its dtypes are.
// So does a Typed case: codes are equal, and the rest rounds to f32 in another order.
double tolerance(const OpCase& c) {
  return c.op == OpCode::adamw_step || is_typed(c) ? 2e-6 : 1e-11;
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double x : values) result = std::isnan(x) ? result : std::max(result, std::fabs(x));
  return result;
}

void expect_equal(const Tensors& actual, const Tensors& expected, double relative,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    const auto& other = actual.at(name);
    ASSERT_EQ(other.size(), values.size()) << what << " " << name;
    const double bound = relative * (1 + largest(values));
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i]) && std::isnan(other[i])) continue;
      EXPECT_NEAR(other[i], values[i], bound) << what << " " << name << "[" << i << "]";
    }
  }
}

TEST(Decompositions, equal_their_ops) {
  std::set<OpCode> seen;
  for (const OpCase& c : op_cases::op_cases()) {
    const OpDef& def = op_def(c.op);
    if (def.decompose == nullptr || def.is_composed || has_remainder(c)) continue;
    const Graph whole = case_graph(c);
    const Graph parts = is_typed(c) ? fusion::decomposed_once(whole) : decompose_all(whole);
    ASSERT_NO_THROW(verify(parts)) << c.name;
    const Tensors inputs = case_inputs(c, 3);
    expect_equal(reference::interpret(parts, inputs), reference::interpret(whole, inputs),
                 tolerance(c), c.name);
    seen.insert(c.op);
  }
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpCode>(i);
    if (op_def(op).decompose != nullptr && !op_def(op).is_composed) {
      EXPECT_TRUE(seen.contains(op)) << op_def(op).name;
    }
  }
}

TEST(Decompositions, are_there_where_the_reference_has_no_kernel) {
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpCode>(i);
    EXPECT_EQ(reference::kernel(op) == nullptr, op_def(op).is_composed) << op_def(op).name;
    if (op_def(op).is_composed) {
      EXPECT_TRUE(op_def(op).decompose != nullptr) << op_def(op).name;
    }
  }
}

// Typed graphs round what the reference does not round between the steps: to f32, or to BF16.
TEST(Decompositions, of_a_reference_round_once) {
  std::set<OpCode> narrower;
  for (const OpCase& c : op_cases::op_cases()) {
    if (!op_def(c.op).is_composed || is_typed(c)) continue;
    const Tensors inputs = case_inputs(c, 3);
    const Graph graph = case_graph(c, Dtype::bf16);
    Tensors rounded = inputs;
    for (const GraphInput& input : graph.inputs) {
      const Dtype dtype = graph.type(input.value).dtype;
      for (double& x : rounded[input.name]) x = reference::round_to(dtype, x);
    }
    Tensors exact = reference::interpret(case_graph(c), rounded);
    for (const GraphOutput& output : graph.outputs) {
      const Dtype dtype = graph.type(output.value).dtype;
      for (double& x : exact[output.name]) x = reference::round_to(dtype, x);
    }
    EXPECT_EQ(reference::interpret(graph, inputs), exact) << c.name;
    if (reference::interpret(decompose_all(graph), inputs) != exact) narrower.insert(c.op);
  }
  EXPECT_TRUE(narrower.contains(OpCode::rms_norm));  // which others round between their steps
}

// States as they are stored, quantizers and scales stand beside the primitives: nothing simpler
// says what they do.
bool is_atom(OpCode op) {
  if (op_def(op).is_abstract || op == OpCode::load_state || op == OpCode::store_state) return true;
  if (op == OpCode::axpby || (op >= OpCode::rescale && op <= OpCode::data_scale)) return false;
  if (op == OpCode::is_finite || op == OpCode::integer_pow || op == OpCode::stop_scaling ||
      op == OpCode::reverse || (op >= OpCode::reduce_min && op <= OpCode::reduce_window))
    return false;
  if (op == OpCode::fake_quantize || op >= OpCode::take_shard) return true;
  if (op == OpCode::quantize_both || op == OpCode::periodic_scale) return false;
  return op < OpCode::gemm || (op >= OpCode::amax && op <= OpCode::dequantize);
}

TEST(Decompositions, end_in_primitives) {
  for (const OpCase& c : op_cases::op_cases()) {
    if (has_remainder(c)) continue;
    for (const Node& node : decompose_all(case_graph(c)).nodes) {
      EXPECT_TRUE(is_atom(node.op)) << c.name << " leaves " << op_def(node.op).name;
    }
  }
}

TEST(Decompositions, every_op_but_the_atoms_has_one) {
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpCode>(i);
    EXPECT_EQ(op_def(op).decompose == nullptr, is_atom(op)) << op_def(op).name;
  }
}

TEST(Decompositions, a_remainder_is_refused) {
  for (const OpCase& c : op_cases::op_cases()) {
    if (has_remainder(c)) {
      EXPECT_THROW(decompose_all(case_graph(c)), Error) << c.name;
    }
  }
}

TEST(Decompositions, the_norm_sees_what_is_not_finite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), 1.0}) {
    Graph graph;
    Builder b(graph);
    const ValueId clip = b.input(InputKind::step_scalar, "clip", {Dtype::real, {}});
    const ValueId g = b.input(InputKind::batch, "g", {Dtype::real, {3}});
    const auto results = b.emit(OpCode::global_norm, NoAttrs{}, {clip, g});
    b.output("grad_scale", results[1]);
    b.output("found", results[2]);
    const Tensors inputs = {{"clip", {1.0}}, {"g", {0.5, bad, -2}}};
    const double expected = std::isfinite(bad) ? 0 : 1;
    const Tensors outputs = reference::interpret(graph, inputs);
    EXPECT_EQ(outputs.at("found")[0], expected) << bad;
    if (std::isnan(bad)) {
      EXPECT_EQ(outputs.at("grad_scale")[0], 1);
    }
  }
}

}  // namespace
}  // namespace octet::gradients_decompositions_test
