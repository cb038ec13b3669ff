// Full attention of two lengths, as a decoder reads an encoder's rows: on cuDNN where it is there,
// against the CPU's reference kernels, forward and backward.
#include "gpu/attention/compare.h"
#include "gpu/parity/gpu.h"
#include "plan/kernel_row.h"

namespace octet::fusion {
namespace {

using op_cases::OpCase;
using op_cases::tensor;

std::vector<AttentionAttrs> rectangles() {
  std::vector<AttentionAttrs> all = {
      {.batch = 2, .q_len = 128, .kv_len = 512, .heads = 4, .kv_heads = 4, .head_dim = 64},
      {.batch = 2, .q_len = 512, .kv_len = 128, .heads = 4, .kv_heads = 4, .head_dim = 64},
      {.batch = 1, .q_len = 256, .kv_len = 384, .heads = 4, .kv_heads = 2, .head_dim = 128},
      {.batch = 3, .q_len = 61, .kv_len = 197, .heads = 2, .kv_heads = 2, .head_dim = 64},
      {.batch = 3, .q_len = 197, .kv_len = 61, .heads = 2, .kv_heads = 1, .head_dim = 32},
      {.batch = 4, .q_len = 1, .kv_len = 512, .heads = 8, .kv_heads = 8, .head_dim = 64}};
  for (AttentionAttrs& a : all) {
    a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
    a.mask = AttentionMask::full;
    a.keys = AttentionKeys::fixed;
  }
  return all;
}

struct Shapes {
  Shape q, kv, lse;
};
Shapes shapes_of(const AttentionAttrs& a) {
  const int64_t rows = a.batch * a.q_len;
  return {{rows, a.heads * a.head_dim},
          {a.batch * a.kv_len, a.kv_heads * a.head_dim},
          {rows * a.heads}};
}
OpCase forward_case(const AttentionAttrs& a) {
  const Shapes s = shapes_of(a);
  return {.name = "attention",
          .op = OpCode::attention,
          .attrs = a,
          .operands = {tensor(s.q), tensor(s.kv), tensor(s.kv)}};
}
OpCase gradient_case(const AttentionAttrs& a) {
  const Shapes s = shapes_of(a);
  return {.name = "attention_grad",
          .op = OpCode::attention_grad,
          .attrs = a,
          .operands = {tensor(s.q), tensor(s.q), tensor(s.kv), tensor(s.kv),
                       op_cases::derived(s.q, {OpCode::attention, {1, 2, 3}, 0}),
                       op_cases::statistic(s.lse, {OpCode::attention, {1, 2, 3}, 1})}};
}

// The row that runs the graph's one node, once those that the machine refuses are out.
std::string_view row_of(const Graph& graph, Backend& backend) {
  const auto choice = backend.catalogue->choose(graph, graph.nodes.front());
  return choice ? choice->row->name : "none";
}

void expect_near_the_reference(const OpCase& c, Dtype dtype, Backend& gpu) {
  const auto& a = std::get<AttentionAttrs>(c.attrs);
  const Graph graph = case_graph(c, dtype);
  const Tensors inputs = case_inputs(c, 5);
  const Tensors want = run_plan(graph, inputs, scalar_backend());
  EXPECT_LE(largest_error(run_plan(graph, inputs, gpu), want), attention_tolerance(dtype))
      << c.name << " " << a.q_len << " x " << a.kv_len << " on " << row_of(graph, gpu);
}

TEST(AttentionLengths, of_two_lengths_are_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    for (const AttentionAttrs& a : rectangles()) {
      expect_near_the_reference(forward_case(a), dtype, *gpu);
      expect_near_the_reference(gradient_case(a), dtype, *gpu);
    }
  }
}

// cuDNN's where it is there, else our own. Multiples of 128 are taken by every version of it.
TEST(AttentionLengths, of_two_lengths_are_cudnns) {
  OCTET_GPU_OR_SKIP(gpu);
  const std::string_view row = gpu->catalogue->target().dnn.empty() ? "tensor cores" : "cudnn";
  for (const AttentionAttrs& a : rectangles()) {
    if (a.q_len % 128 != 0 || a.kv_len % 128 != 0) continue;
    for (const OpCase& c : {forward_case(a), gradient_case(a)}) {
      const Graph graph = case_graph(c, Dtype::bf16);
      run_plan(graph, case_inputs(c, 5), *gpu);
      EXPECT_EQ(row_of(graph, *gpu), row) << a.q_len << " x " << a.kv_len;
    }
  }
}

TEST(AttentionLengths, gradients_of_two_lengths_repeat_their_bits_where_they_must) {
  OCTET_GPU_OR_SKIP(gpu);
  Backend deterministic =
      cuda::make_backend({.module = gpu_module(), .deterministic = true, .n_threads = 4});
  for (const AttentionAttrs& a : rectangles()) {
    const OpCase c = gradient_case(a);
    expect_near_the_reference(c, Dtype::bf16, deterministic);
    const Graph graph = case_graph(c, Dtype::bf16);
    const Tensors inputs = case_inputs(c, 5), first = run_plan(graph, inputs, deterministic);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(run_plan(graph, inputs, deterministic), first) << a.q_len << " x " << a.kv_len;
  }
}

}  // namespace
}  // namespace octet::fusion
