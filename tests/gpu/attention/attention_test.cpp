// Attention's gradient where results must repeat their bits, against the CPU's reference kernels.
#include "gpu/attention/compare.h"
#include "gpu/parity/gpu.h"

namespace octet::fusion {
namespace {

using op_cases::OpCase;

// Sizes that the library takes.
OpCase gradient(AttentionAttrs a) {
  const int64_t rows = a.batch * a.q_len;
  const Shape q{rows, a.heads * a.head_dim}, kv{rows, a.kv_heads * a.head_dim};
  using op_cases::tensor;
  return {.name = "attention_grad",
          .op = OpCode::attention_grad,
          .attrs = a,
          .operands = {tensor(q), tensor(q), tensor(kv), tensor(kv),
                       op_cases::derived(q, {OpCode::attention, {1, 2, 3}, 0}),
                       op_cases::statistic({rows * a.heads}, {OpCode::attention, {1, 2, 3}, 1})}};
}

std::vector<AttentionAttrs> shapes() {
  std::vector<AttentionAttrs> all = {
      {.batch = 1, .q_len = 1024, .kv_len = 1024, .heads = 2, .kv_heads = 2, .head_dim = 64},
      {.batch = 2, .q_len = 256, .kv_len = 256, .heads = 4, .kv_heads = 4, .head_dim = 64},
      {.batch = 1,
       .q_len = 384,
       .kv_len = 384,
       .heads = 4,
       .kv_heads = 2,
       .head_dim = 128,
       .mask = AttentionMask::full},
      {.batch = 1, .q_len = 200, .kv_len = 200, .heads = 2, .kv_heads = 2, .head_dim = 64}};
  for (AttentionAttrs& a : all) a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
  return all;
}

// A process has one module: what the first back end prepared must not serve the second.
TEST(DeterministicAttention, repeats_its_bits_and_is_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const AttentionAttrs& a : shapes()) {
    const OpCase c = gradient(a);
    run_plan(case_graph(c, Dtype::bf16), case_inputs(c, 5), *gpu);
  }
  Backend deterministic =
      cuda::make_backend({.module = gpu_module(), .deterministic = true, .n_threads = 4});
  for (const AttentionAttrs& a : shapes()) {
    const OpCase c = gradient(a);
    const Graph graph = case_graph(c, Dtype::bf16);
    const Tensors inputs = case_inputs(c, 5);
    const Tensors first = run_plan(graph, inputs, deterministic);
    EXPECT_LE(largest_error(first, run_plan(graph, inputs, scalar_backend())),
              attention_tolerance(Dtype::bf16))
        << a.q_len;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(run_plan(graph, inputs, deterministic), first) << a.q_len;
  }
}

// Two scales whose first six decimals are the same.
TEST(Attention, scales_that_differ_little_are_told_apart) {
  OCTET_GPU_OR_SKIP(gpu);
  AttentionAttrs a{
      .batch = 1, .q_len = 128, .kv_len = 128, .heads = 2, .kv_heads = 2, .head_dim = 64};
  for (const double scale : {1e-7, 4e-7}) {
    a.scale = scale;
    const OpCase c = gradient(a);
    const Graph graph = case_graph(c, Dtype::bf16);
    const Tensors inputs = case_inputs(c, 5);
    const Tensors want = run_plan(graph, inputs, scalar_backend());
    EXPECT_LE(largest_error(run_plan(graph, inputs, *gpu), want), attention_tolerance(Dtype::bf16))
        << scale;
  }
}

}  // namespace
}  // namespace octet::fusion
