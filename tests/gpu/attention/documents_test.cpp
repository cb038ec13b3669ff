// Attention within documents and windows, forward and backward, against the CPU's reference
// kernels, for layouts that cut tiles in many ways.
#include <numeric>

#include "gpu/attention/compare.h"
#include "gpu/parity/gpu.h"

namespace octet::fusion {
namespace {

using op_cases::OpCase;
using Lengths = std::vector<int64_t>;

// One row of the batch; the last document goes on to the row's end.
std::vector<double> starts_of(const Lengths& lengths, int64_t seq) {
  std::vector<double> starts;
  int64_t begin = 0;
  for (size_t i = 0; begin < seq; ++i) {
    const int64_t end = i < lengths.size() ? std::min(begin + lengths[i], seq) : seq;
    starts.insert(starts.end(), static_cast<size_t>(end - begin), static_cast<double>(begin));
    begin = end;
  }
  return starts;
}

struct DocumentProblem {
  AttentionAttrs attrs;
  std::vector<Lengths> rows = {};  // empty: no documents
  Dtype dtype = Dtype::bf16;

  bool documents() const { return !rows.empty(); }
  std::vector<double> starts() const {
    std::vector<double> all;
    for (const Lengths& row : rows) {
      const std::vector<double> one = starts_of(row, attrs.q_len);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
};

OpCase forward_case(const DocumentProblem& p) {
  const AttentionAttrs& a = p.attrs;
  const int64_t rows = a.batch * a.q_len;
  const Shape q{rows, a.heads * a.head_dim}, kv{rows, a.kv_heads * a.head_dim};
  using op_cases::tensor;
  OpCase c{.name = "attention",
           .op = OpCode::attention,
           .attrs = a,
           .operands = {tensor(q), tensor(kv), tensor(kv)}};
  if (p.documents()) {
    c.operands.push_back(op_cases::integers({rows}, op_cases::Fill::doc_starts, a.q_len));
  }
  return c;
}
OpCase gradient_case(const DocumentProblem& p) {
  OpCase c = forward_case(p);
  const auto q = c.operands[0];
  const int64_t n_lse = p.attrs.batch * p.attrs.q_len * p.attrs.heads;
  auto lse = op_cases::tensor({n_lse});
  lse.f32_only = true;
  c.name = "attention_grad", c.op = OpCode::attention_grad;
  c.operands.insert(c.operands.begin(), q);
  c.operands.insert(c.operands.begin() + 4, {q, lse});
  return c;
}

Graph graph_of(const OpCase& c, const DocumentProblem& p) {
  return op_cases::case_graph(c, p.dtype);
}
Tensors forward_inputs(const DocumentProblem& p) {
  Tensors inputs = op_cases::case_inputs(forward_case(p), 7);
  if (p.documents()) inputs["in3"] = p.starts();
  return inputs;
}
// do, q, k, v, o, lse and where documents start.
Tensors gradient_inputs(const DocumentProblem& p, const Tensors& forward, const Tensors& results) {
  Tensors inputs = op_cases::case_inputs(gradient_case(p), 8);
  inputs["in1"] = forward.at("in0"), inputs["in2"] = forward.at("in1");
  inputs["in3"] = forward.at("in2");
  inputs["in4"] = results.at("out0"), inputs["in5"] = results.at("out1");
  if (p.documents()) inputs["in6"] = forward.at("in3");
  return inputs;
}

std::string text_of(const DocumentProblem& p) {
  const AttentionAttrs& a = p.attrs;
  return fmt::format("{} batch {} seq {} heads {}/{} of {} window {} documents {}",
                     dtype_name(p.dtype), a.batch, a.q_len, a.heads, a.kv_heads, a.head_dim,
                     a.window, p.rows.empty() ? 0 : p.rows[0].size());
}

void expect_near_the_reference(const DocumentProblem& problem, Backend& gpu) {
  DocumentProblem p = problem;
  p.attrs.scale = 1 / std::sqrt(static_cast<double>(p.attrs.head_dim));
  const double bound = attention_tolerance(p.dtype);
  const Graph forward = graph_of(forward_case(p), p), gradient = graph_of(gradient_case(p), p);
  const Tensors inputs = forward_inputs(p);
  const Tensors want = run_plan(forward, inputs, scalar_backend());
  const Tensors got = run_plan(forward, inputs, gpu);
  EXPECT_LE(largest_error(got, want), bound) << text_of(p);
  const Tensors back = gradient_inputs(p, inputs, want);
  const Tensors want_back = run_plan(gradient, back, scalar_backend());
  const Tensors got_back = run_plan(gradient, back, gpu);
  EXPECT_LE(largest_error(got_back, want_back), bound) << text_of(p);
}

// 128 queries a block, 64 or 32 keys a tile: bounds on them, beside them and within.
const std::vector<Lengths> kLayouts = {
    {},
    {64, 64, 64},
    {128, 128},
    {1, 1, 1, 61, 64, 65, 2},
    {127, 2, 127},
    {63, 1, 200},
    {33, 31, 32, 17, 15, 16, 100},
    {250, 3},
};

TEST(DocumentAttention, layouts_are_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Lengths& layout : kLayouts) {
    for (const int64_t head_dim : {64, 128}) {
      expect_near_the_reference({.attrs = {.batch = 2,
                                           .q_len = 300,
                                           .kv_len = 300,
                                           .heads = 2,
                                           .kv_heads = 2,
                                           .head_dim = head_dim},
                                 .rows = {layout, {100, 5, 60}}},
                                *gpu);
    }
  }
}

TEST(DocumentAttention, head_sizes_types_and_shared_heads_are_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  const Lengths layout = {70, 1, 129, 12};
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::f32}) {
    for (const int64_t head_dim : {5, 24, 72, 96, 160}) {
      expect_near_the_reference({.attrs = {.batch = 1,
                                           .q_len = 260,
                                           .kv_len = 260,
                                           .heads = 6,
                                           .kv_heads = 2,
                                           .head_dim = head_dim},
                                 .rows = {layout},
                                 .dtype = dtype},
                                *gpu);
    }
  }
}

TEST(DocumentAttention, windows_with_and_without_documents_are_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const int64_t window : {1, 2, 31, 64, 65, 200, 299, 300, 1000}) {
    for (const bool documents : {false, true}) {
      for (const int64_t head_dim : {64, 128, 136}) {
        DocumentProblem p{.attrs = {.batch = 2,
                                    .q_len = 300,
                                    .kv_len = 300,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = head_dim,
                                    .window = window}};
        if (documents) p.rows = {{90, 3, 120}, {}};
        expect_near_the_reference(p, *gpu);
      }
    }
  }
}

TEST(DocumentAttention, long_rows_of_many_documents_are_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const int64_t length : {64, 100, 128}) {
    expect_near_the_reference(
        {.attrs =
             {.batch = 1, .q_len = 2100, .kv_len = 2100, .heads = 1, .kv_heads = 1, .head_dim = 64},
         .rows = {Lengths(16, length)}},
        *gpu);
  }
}

// The gradient of one document's outputs is exactly zero in all others, and what those hold does
// not reach it.
TEST(DocumentAttention, documents_do_not_reach_each_other) {
  OCTET_GPU_OR_SKIP(gpu);
  constexpr size_t kFirst = 75, kEnd = 190;  // of the document in the middle
  DocumentProblem p{
      .attrs = {.batch = 1, .q_len = 256, .kv_len = 256, .heads = 2, .kv_heads = 1, .head_dim = 64},
      .rows = {{kFirst, kEnd - kFirst}}};
  p.attrs.scale = 0.125;
  const Graph forward = graph_of(forward_case(p), p), gradient = graph_of(gradient_case(p), p);
  const auto inside = [&](size_t i, size_t columns) {
    return i / columns >= kFirst && i / columns < kEnd;
  };
  const auto keep_inside = [&](std::vector<double>& values, size_t columns, double otherwise) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (!inside(i, columns)) values[i] = otherwise;
    }
  };
  Tensors inputs = forward_inputs(p);
  const Tensors results = run_plan(forward, inputs, *gpu);
  Tensors back = gradient_inputs(p, inputs, results);
  keep_inside(back["in0"], 128, 0);
  const Tensors gradients = run_plan(gradient, back, *gpu);
  for (const auto& [name, values] : gradients) {
    const size_t columns = values.size() / 256;
    double within = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (inside(i, columns)) within += std::abs(values[i]);
      if (!inside(i, columns)) {
        ASSERT_EQ(values[i], 0) << name << " " << i;
      }
    }
    EXPECT_GT(within, 1) << name;
  }
  for (const char* name : {"in0", "in1", "in2"}) {
    keep_inside(inputs[name], name[2] == '0' ? 128 : 64, 3);
  }
  const Tensors others = run_plan(forward, inputs, *gpu);
  for (size_t i = kFirst * 128; i < kEnd * 128; ++i) {
    ASSERT_EQ(others.at("out0")[i], results.at("out0")[i]) << i;
  }
}

// Ours sum in one order, so that runs with documents repeat their bits without being asked to.
TEST(DocumentAttention, repeats_its_bits) {
  OCTET_GPU_OR_SKIP(gpu);
  DocumentProblem p{
      .attrs =
          {.batch = 2, .q_len = 512, .kv_len = 512, .heads = 8, .kv_heads = 2, .head_dim = 128},
      .rows = {{100, 200}, {300}}};
  p.attrs.scale = 0.1;
  const Graph forward = graph_of(forward_case(p), p), gradient = graph_of(gradient_case(p), p);
  const Tensors inputs = forward_inputs(p);
  const Tensors results = run_plan(forward, inputs, *gpu);
  const Tensors back = gradient_inputs(p, inputs, results);
  const Tensors gradients = run_plan(gradient, back, *gpu);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run_plan(forward, inputs, *gpu), results);
    EXPECT_EQ(run_plan(gradient, back, *gpu), gradients);
  }
}

}  // namespace
}  // namespace octet::fusion
