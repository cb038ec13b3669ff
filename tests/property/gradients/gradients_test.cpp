// Every op's gradient against central differences in f64 on the reference interpreter, case by
// case.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "op_cases/op_cases.h"

namespace octet::gradients_test {
namespace {

using op_cases::OpCase;
using reference::Tensors;

std::string cotangent_name(size_t i) {
  return "cotangent" + std::to_string(i);
}
std::string gradient_name(size_t i) {
  return "gradient" + std::to_string(i);
}

// A gradient may arrive for the first result and for every float that is no statistic.
bool takes_gradient(const OpDef& def, const TensorType& type, size_t result) {
  const bool statistic = def.statistics.contains(result);
  const bool is_nll = def.code == OpCode::cross_entropy && result == CrossEntropy::nll;
  return is_float(type.dtype) && (result == 0 || is_nll || !statistic);
}

struct Gradients {
  Graph graph;                    // the op, and its vjp with a random cotangent per result
  std::vector<ValueId> operands;  // what vjp returned
  Tensors cotangents;
};

Gradients build_gradients(const OpCase& c, bool with_cotangents) {
  Gradients result{case_graph(c), {}, {}};
  Builder builder(result.graph);
  const Node node = result.graph.nodes[0];
  const OpDef& def = op_def(c.op);
  std::mt19937_64 random(17);
  std::normal_distribution<double> normal;
  std::vector<ValueId> dresults;
  for (size_t i = 0; i < node.results.size(); ++i) {
    dresults.push_back(kNoValue);
    if (node.results[i] == kNoValue) continue;
    const TensorType type = builder.type(node.results[i]);
    if (!with_cotangents || !takes_gradient(def, type, i)) continue;
    dresults.back() = builder.input(InputKind::batch, cotangent_name(i), type);
    auto& values = result.cotangents[cotangent_name(i)];
    for (int64_t k = 0; k < type.n_elems(); ++k) values.push_back(normal(random));
  }
  result.operands = def.vjp(builder, {.node = node, .dresults = dresults});
  EXPECT_EQ(result.operands.size(), node.operands.size()) << c.name;
  result.operands.resize(c.operands.size(), kNoValue);  // a node has no absent ones at its end
  for (size_t i = 0; i < result.operands.size(); ++i) {
    if (result.operands[i] != kNoValue) builder.output(gradient_name(i), result.operands[i]);
  }
  return result;
}

// The cotangents' inner product with the results.
double objective(const Graph& forward, const Tensors& inputs, const Tensors& cotangents) {
  const Tensors outputs = reference::interpret(forward, inputs);
  double sum = 0;
  for (const auto& [name, cotangent] : cotangents) {
    const size_t i = static_cast<size_t>(name.back() - '0');
    const auto& result = outputs.at(op_cases::output_name(i));
    for (size_t k = 0; k < result.size(); ++k) sum += cotangent[k] * result[k];
  }
  return sum;
}

double central_difference(const Graph& forward, Tensors inputs, const Tensors& cotangents,
                          const std::string& name, size_t element) {
  constexpr double kStep = 1e-5;
  double& x = inputs[name][element];
  const double middle = x;
  x = middle + kStep;
  const double above = objective(forward, inputs, cotangents);
  x = middle - kStep;
  const double below = objective(forward, inputs, cotangents);
  return (above - below) / (2 * kStep);
}

void check_operand(const OpCase& c, size_t operand, const Gradients& gradients) {
  const Graph forward = case_graph(c);
  const Tensors inputs = case_inputs(c, 1);
  Tensors all = inputs;
  all.insert(gradients.cotangents.begin(), gradients.cotangents.end());
  const Tensors outputs = reference::interpret(gradients.graph, all);
  const std::string name = op_cases::input_name(operand);
  const size_t n = inputs.at(name).size();
  const auto found = outputs.find(gradient_name(operand));
  const size_t stride = n <= 24 ? 1 : n / 11;
  for (size_t k = 0; k < n; k += stride) {
    const double expected = central_difference(forward, inputs, gradients.cotangents, name, k);
    const double actual = found == outputs.end() ? 0 : found->second.at(k);
    // Rounding of the difference: the objective's size times 2^-52 / step, and the step's square.
    EXPECT_NEAR(actual, expected, 1e-7 * (1 + std::fabs(expected)) * 10)
        << c.name << ", operand " << operand << ", element " << k;
  }
}

bool has_case(OpCode op) {
  for (const OpCase& c : op_cases::op_cases()) {
    if (c.op == op) return true;
  }
  return false;
}

TEST(Gradients, every_op_has_a_case) {
  for (int i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<OpCode>(i);
    if (op_def(op).is_abstract) continue;
    EXPECT_TRUE(has_case(op)) << op_def(op).name << " has no case in tests/op_cases";
  }
}

TEST(Gradients, case_names_are_unique_and_inputs_are_not_all_zero) {
  std::set<std::string> names;
  for (const OpCase& c : op_cases::op_cases()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    for (const auto& [name, values] : case_inputs(c, 1)) {
      double sum = 0;
      for (const double x : values) sum += std::fabs(x);
      // A history begins with zeros.
      if (values.size() > 1 && c.op != OpCode::periodic_scale) {
        EXPECT_GT(sum, 0) << c.name << " " << name;
      }
    }
  }
}

TEST(Gradients, equal_central_differences) {
  int n_checked = 0;
  for (const OpCase& c : op_cases::op_cases()) {
    if (op_def(c.op).vjp == nullptr || is_typed(c)) continue;
    const Gradients gradients = build_gradients(c, true);
    ASSERT_NO_THROW(verify(gradients.graph)) << c.name;
    for (size_t i = 0; i < c.operands.size(); ++i) {
      const auto& o = c.operands[i];
      const bool constant = std::find(c.no_gradient.begin(), c.no_gradient.end(),
                                      static_cast<int>(i)) != c.no_gradient.end();
      if (o.absent || !is_float(o.type.dtype)) {
        EXPECT_EQ(gradients.operands[i], kNoValue) << c.name << ", operand " << i;
      } else if (!constant) {
        check_operand(c, i, gradients);
        ++n_checked;
      }
    }
  }
  EXPECT_GT(n_checked, 150);
}

TEST(Gradients, nothing_flows_where_nothing_arrives) {
  for (const OpCase& c : op_cases::op_cases()) {
    if (op_def(c.op).vjp == nullptr || is_typed(c)) continue;
    const Gradients gradients = build_gradients(c, false);
    EXPECT_EQ(gradients.operands, std::vector<ValueId>(c.operands.size(), kNoValue)) << c.name;
    EXPECT_EQ(gradients.graph.nodes.size(), 1u) << c.name;
  }
}

TEST(Gradients, a_gradient_for_a_statistic_is_refused) {
  for (const OpCase& c : op_cases::op_cases()) {
    const OpDef& def = op_def(c.op);
    Graph graph = case_graph(c);
    const Node node = graph.nodes[0];
    if (def.vjp == nullptr || is_typed(c) || node.out(1) == kNoValue) continue;
    Builder builder(graph);
    std::vector<ValueId> dresults(node.results.size(), kNoValue);
    dresults[1] = builder.fill_like(node.results[1], 1);
    EXPECT_THROW(def.vjp(builder, {.node = node, .dresults = dresults}), Error) << c.name;
  }
}

// Ops whose results take no gradient, and which a gradient may therefore use freely.
bool is_constant(OpCode op) {
  return op == OpCode::fill || op == OpCode::iota || op == OpCode::less || op == OpCode::equal ||
         op == OpCode::argmax;
}

TEST(Gradients, a_primitives_gradient_is_differentiable) {
  for (const OpCase& c : op_cases::op_cases()) {
    const OpDef& def = op_def(c.op);
    if (def.vjp == nullptr || def.decompose != nullptr || is_typed(c)) continue;
    const Gradients gradients = build_gradients(c, true);
    for (size_t i = 1; i < gradients.graph.nodes.size(); ++i) {
      const Node& node = gradients.graph.nodes[i];
      EXPECT_TRUE(op_def(node.op).vjp != nullptr || is_constant(node.op))
          << c.name << ": " << print(gradients.graph, node);
    }
  }
}

TEST(Gradients, a_wrong_gradient_is_seen) {
  OpCase c;
  for (const OpCase& candidate : op_cases::op_cases()) {
    if (candidate.name == "gemm_nt_3x5x4") c = candidate;
  }
  ASSERT_EQ(c.op, OpCode::gemm);
  const Gradients gradients = build_gradients(c, true);
  Tensors all = case_inputs(c, 1);
  const Tensors inputs = all;
  all.insert(gradients.cotangents.begin(), gradients.cotangents.end());
  const double actual = reference::interpret(gradients.graph, all)["gradient0"][3];
  const double other = central_difference(case_graph(c), inputs, gradients.cotangents, "in0", 4);
  EXPECT_GT(std::fabs(actual - other), 1e-3);
}

}  // namespace
}  // namespace octet::gradients_test
