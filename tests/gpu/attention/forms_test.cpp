// Attention in all its forms against the CPU's reference kernels: lengths, masks, windows, ranges
// and biases of golden/attention, on the row that takes each.
#include "golden/attention/forms.h"
#include "gpu/attention/compare.h"
#include "gpu/parity/gpu.h"

namespace octet::fusion {
namespace {

using test::AttentionForm;
using test::FormTypes;
using test::Pass;

void expect_near_the_reference(const AttentionForm& form, const FormTypes& types, Backend& gpu) {
  const double bound = attention_tolerance(types.dtype);
  Tensors inputs = test::form_inputs(form);
  const Graph forward = test::form_graph(form, Pass::forward, types);
  const Tensors results = run_plan(forward, inputs, scalar_backend());
  EXPECT_LE(test::form_error(run_plan(forward, inputs, gpu), results), bound) << form.text;
  inputs["o"] = results.at("o"), inputs["lse"] = results.at("lse");
  const Graph gradient = test::form_graph(form, Pass::gradient, types);
  EXPECT_LE(test::form_error(run_plan(gradient, inputs, gpu),
                             run_plan(gradient, inputs, scalar_backend())),
            bound)
      << form.text;
}

// Every `step`th from `first` on.
void expect_forms(const FormTypes& types, size_t first, size_t step) {
  OCTET_GPU_OR_SKIP(gpu);
  const auto forms = test::attention_forms();
  for (size_t i = first; i < forms.size(); i += step)
    expect_near_the_reference(forms[i], types, *gpu);
}

TEST(AttentionForms, some_in_bf16_are_near_the_reference) {
  expect_forms({Dtype::bf16, Dtype::bf16}, 1, 9);
}
TEST(AttentionForms, some_in_f32_are_near_the_reference) {
  expect_forms({Dtype::f32, Dtype::f32}, 2, 13);
}
TEST(AllAttentionForms, in_bf16_are_near_the_reference) {
  expect_forms({Dtype::bf16, Dtype::bf16}, 0, 1);
}
TEST(AllAttentionForms, in_fp16_with_a_bias_in_f32_are_near_the_reference) {
  expect_forms({Dtype::fp16, Dtype::f32}, 0, 1);
}
TEST(AllAttentionForms, in_f32_are_near_the_reference) {
  expect_forms({Dtype::f32, Dtype::f32}, 0, 1);
}

// The gradients of ours are sums in one order.
TEST(AttentionForms, a_biass_gradient_repeats_its_bits) {
  OCTET_GPU_OR_SKIP(gpu);
  const FormTypes types{Dtype::bf16, Dtype::f32};
  for (const AttentionForm& form : test::attention_forms()) {
    if (form.bias.empty() || form.attrs.q_len > 33) continue;
    Tensors inputs = test::form_inputs(form);
    const Tensors forward =
        run_plan(test::form_graph(form, Pass::forward, types), inputs, scalar_backend());
    inputs["o"] = forward.at("o"), inputs["lse"] = forward.at("lse");
    const Graph gradient = test::form_graph(form, Pass::gradient, types);
    EXPECT_EQ(run_plan(gradient, inputs, *gpu), run_plan(gradient, inputs, *gpu)) << form.text;
  }
}

}  // namespace
}  // namespace octet::fusion
