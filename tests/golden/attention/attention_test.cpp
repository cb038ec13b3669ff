// Attention in all its forms: the reference kernels and decompositions against PyTorch, and the
// CPU's fast kernels against the reference.
#include "golden/attention/forms.h"
#include "property/fusion/run.h"

namespace octet::test::attention_test {
namespace {

using fusion::run_plan;
using reference::Tensors;

// A result as make_golden.py writes it.
std::array<double, 2> sums_of(const std::vector<double>& x) {
  std::array<double, 2> sums = {};
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) continue;
    sums[0] += x[i] * attention_value(9, i), sums[1] += std::abs(x[i]);
  }
  return sums;
}

void expect_sums(const Tensors& results, const AttentionForm& form) {
  for (const auto& [name, values] : results) {
    const auto got = sums_of(values), want = form.sums.at(name);
    const double bound = 1e-9 * (1 + want[1]);
    EXPECT_NEAR(got[0], want[0], bound) << name << " of " << form.text;
    EXPECT_NEAR(got[1], want[1], bound) << name << " of " << form.text;
  }
}

void add_results(Tensors& inputs, const Tensors& forward) {
  inputs["o"] = forward.at("o"), inputs["lse"] = forward.at("lse");
}

// A graph of the one node's decomposition, with its names.
Graph decomposed(const Graph& graph) {
  Graph parts;
  parts.phase = graph.phase;
  Builder b(parts);
  for (const GraphInput& input : graph.inputs)
    b.input(input.kind, input.name, graph.type(input.value));
  const Node& node = graph.nodes[0];
  const ValueIds results = op_def(node.op).decompose(b, node, {});
  for (size_t i = 0; i < results.size(); ++i)
    b.output(std::string(op_def(node.op).results[i].name), results[i]);
  return parts;
}

TEST(AttentionForms, the_reference_has_the_numbers_of_pytorch) {
  const auto forms = attention_forms();
  ASSERT_EQ(forms.size(), 60u);
  for (const AttentionForm& form : forms) {
    Tensors inputs = form_inputs(form);
    const Tensors forward = reference::interpret(form_graph(form, Pass::forward, {}), inputs);
    expect_sums(forward, form);
    add_results(inputs, forward);
    expect_sums(reference::interpret(form_graph(form, Pass::gradient, {}), inputs), form);
  }
}

TEST(AttentionForms, decompositions_mean_the_same) {
  for (const AttentionForm& form : attention_forms()) {
    if (form.attrs.q_len * form.attrs.kv_len > 8000) continue;  // seconds each
    Tensors inputs = form_inputs(form);
    const Graph forward = form_graph(form, Pass::forward, {});
    const Tensors results = reference::interpret(forward, inputs);
    EXPECT_LE(form_error(reference::interpret(decomposed(forward), inputs), results), 1e-12)
        << form.text;
    add_results(inputs, results);
    const Graph gradient = form_graph(form, Pass::gradient, {});
    EXPECT_LE(form_error(reference::interpret(decomposed(gradient), inputs),
                         reference::interpret(gradient, inputs)),
              1e-12)
        << form.text;
  }
}

// 8-bit significands of factors and results; f32 sums.
void expect_fast(const FormTypes& types, double bound) {
  for (const AttentionForm& form : attention_forms()) {
    Tensors inputs = form_inputs(form);
    const Graph forward = form_graph(form, Pass::forward, types);
    const Tensors results = run_plan(forward, inputs, fusion::scalar_backend());
    EXPECT_LE(form_error(run_plan(forward, inputs, fusion::fast_backend()), results), bound)
        << form.text;
    add_results(inputs, results);
    const Graph gradient = form_graph(form, Pass::gradient, types);
    EXPECT_LE(form_error(run_plan(gradient, inputs, fusion::fast_backend()),
                         run_plan(gradient, inputs, fusion::scalar_backend())),
              bound)
        << form.text;
  }
}

TEST(AttentionForms, fast_kernels_are_near_the_reference_in_f32) {
  expect_fast({Dtype::f32, Dtype::f32}, 2e-5);
}
TEST(AttentionForms, fast_kernels_are_near_the_reference_in_bf16) {
  expect_fast({Dtype::bf16, Dtype::bf16}, 0.02);
}
TEST(AttentionForms, a_bias_may_be_of_a_wider_type) {
  expect_fast({Dtype::bf16, Dtype::f32}, 0.02);
}

}  // namespace
}  // namespace octet::test::attention_test
