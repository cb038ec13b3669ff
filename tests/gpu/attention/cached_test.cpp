// Attention over a KV cache, and the rows written into it, against the CPU's reference kernels.
#include "gpu/attention/compare.h"
#include "gpu/parity/gpu.h"

namespace octet::fusion {
namespace {

using op_cases::OpCase;

struct Problem {
  AttentionAttrs attrs;
  Dtype dtype = Dtype::bf16;
  Shape bias = {};  // none
};

void expect_near_the_reference(Problem p, std::vector<double> positions, Backend& gpu) {
  AttentionAttrs& a = p.attrs;
  a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
  const int64_t rows = a.batch * a.q_len;
  const Shape q{rows, a.heads * a.head_dim}, kv{a.batch * a.kv_len, a.kv_heads * a.head_dim};
  using op_cases::tensor;
  OpCase c{.name = "attention",
           .op = OpCode::attention,
           .attrs = a,
           .operands = {tensor(q), tensor(kv), tensor(kv), op_cases::none(),
                        op_cases::integers({rows}, op_cases::Fill::ids, a.kv_len)}};
  if (!p.bias.empty()) {
    c.operands.push_back(op_cases::none());
    c.operands.push_back(tensor(p.bias));
  }
  const Graph graph = op_cases::case_graph(c, p.dtype);
  Tensors inputs = op_cases::case_inputs(c, 3);
  inputs["in4"] = std::move(positions);
  const Tensors want = run_plan(graph, inputs, scalar_backend());
  const Tensors got = run_plan(graph, inputs, gpu);
  EXPECT_LE(largest_error(got, want), attention_tolerance(p.dtype))
      << dtype_name(p.dtype) << " batch " << a.batch << " seq " << a.q_len << " of " << a.head_dim
      << " keys " << a.kv_len << " window " << a.window;
}

// One token an entry, each somewhere else.
TEST(CachedAttention, one_token_at_a_time_is_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::f32}) {
    for (const int64_t head_dim : {8, 36, 64, 96, 128, 256}) {
      for (const int64_t window : {0, 50}) {
        expect_near_the_reference({.attrs = {.batch = 4,
                                             .q_len = 1,
                                             .kv_len = 700,
                                             .heads = 6,
                                             .kv_heads = 2,
                                             .head_dim = head_dim,
                                             .window = window},
                                   .dtype = dtype},
                                  {0, 17, 333, 699}, *gpu);
      }
    }
  }
}

// So many that a block takes two heads, or four, which share their keys.
TEST(CachedAttention, heads_that_share_keys_are_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  std::vector<double> positions;
  for (int i = 0; i < 40; ++i) positions.push_back(i * 5 % 190);
  for (const int64_t kv_heads : {2, 4, 8, 16}) {
    for (const int64_t head_dim : {64, 128, 136}) {
      expect_near_the_reference({.attrs = {.batch = 40,
                                           .q_len = 1,
                                           .kv_len = 190,
                                           .heads = 32,
                                           .kv_heads = kv_heads,
                                           .head_dim = head_dim}},
                                positions, *gpu);
    }
  }
}

// Blocks of their own make the slices of a few rows' keys; of many rows one block makes all.
TEST(CachedAttention, a_row_has_the_same_bits_among_few_and_among_many) {
  OCTET_GPU_OR_SKIP(gpu);
  constexpr int64_t kMany = 70, kKeys = 600, kHeadDim = 24;
  const auto of = [](int64_t batch) {
    using op_cases::tensor;
    const AttentionAttrs a{.batch = batch,
                           .q_len = 1,
                           .kv_len = kKeys,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = kHeadDim,
                           .scale = 0.2};
    const Shape q{batch, 4 * kHeadDim}, kv{batch * kKeys, 2 * kHeadDim};
    return OpCase{.name = "attention",
                  .op = OpCode::attention,
                  .attrs = a,
                  .operands = {tensor(q), tensor(kv), tensor(kv), op_cases::none(),
                               op_cases::integers({batch}, op_cases::Fill::ids, kKeys)}};
  };
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    Tensors many = op_cases::case_inputs(of(kMany), 3);
    for (const int last : {599, 520, 300, 255, 3, -1}) {
      many["in4"].assign(kMany, 5);
      many["in4"][0] = last;
      Tensors one = many;
      for (auto& [name, values] : one) values.resize(values.size() / kMany);
      const Tensors want = run_plan(op_cases::case_graph(of(kMany), dtype), many, *gpu);
      for (const auto& [name, values] : run_plan(op_cases::case_graph(of(1), dtype), one, *gpu)) {
        const auto& all = want.at(name);
        EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin()))
            << name << " of " << dtype_name(dtype) << " up to " << last;
      }
    }
  }
}

// A bias for one token an entry, and for a prompt that would be tiles for tensor cores without one.
TEST(CachedAttention, a_bias_is_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  constexpr std::pair<Dtype, int64_t> kHeads[] = {
      {Dtype::bf16, 128}, {Dtype::fp16, 36}, {Dtype::f32, 256}};
  for (const int64_t q_len : {1, 40}) {
    std::vector<double> positions;
    for (int i = 0; i < 2 * q_len; ++i) positions.push_back(i % q_len + (i < q_len ? 0 : 50));
    for (const Shape& bias :
         {Shape{1, 6, q_len, 130}, Shape{2, 1, q_len, 130}, Shape{2, 6, 1, 130}}) {
      for (const auto& [dtype, head_dim] : kHeads) {
        SCOPED_TRACE(to_string(bias));
        expect_near_the_reference({.attrs = {.batch = 2,
                                             .q_len = q_len,
                                             .kv_len = 130,
                                             .heads = 6,
                                             .kv_heads = 2,
                                             .head_dim = head_dim,
                                             .window = q_len == 1 ? 50 : 0},
                                   .dtype = dtype,
                                   .bias = bias},
                                  positions, *gpu);
      }
    }
  }
}

TEST(CachedAttention, rows_of_a_prompt_are_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  std::vector<double> positions;
  for (int i = 0; i < 2 * 90; ++i) positions.push_back(i % 90 + (i < 90 ? 0 : 40));
  expect_near_the_reference(
      {.attrs =
           {.batch = 2, .q_len = 90, .kv_len = 130, .heads = 4, .kv_heads = 4, .head_dim = 64}},
      positions, *gpu);
}

// So many rows that tiles of them go to tensor cores: positions in order, repeated, from nothing on
// and in no order.
TEST(CachedAttention, tiles_of_a_long_prompt_are_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  constexpr int64_t kRows = 150, kCapacity = 310;
  struct Order {
    const char* name;
    int (*position)(int row);
  };
  const Order orders[] = {{"in order", [](int t) { return t; }},
                          {"later", [](int t) { return 160 + t; }},
                          {"repeated", [](int t) { return std::min(t, 40); }},
                          {"padded", [](int t) { return t < 70 ? t + 100 : -1; }},
                          {"in no order", [](int t) { return t * 97 % 310; }},
                          {"nothing", [](int) { return -1; }}};
  for (const Order& order : orders) {
    std::vector<double> positions;
    for (int b = 0; b < 2; ++b) {
      for (int t = 0; t < kRows; ++t) positions.push_back(order.position(t));
    }
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
      for (const int64_t head_dim : {40, 64, 128}) {
        for (const int64_t window : {0, 60}) {
          SCOPED_TRACE(order.name);
          expect_near_the_reference({.attrs = {.batch = 2,
                                               .q_len = kRows,
                                               .kv_len = kCapacity,
                                               .heads = 4,
                                               .kv_heads = 2,
                                               .head_dim = head_dim,
                                               .window = window},
                                     .dtype = dtype},
                                    positions, *gpu);
        }
      }
    }
  }
}

TEST(CachedAttention, a_query_at_a_negative_position_sees_nothing) {
  OCTET_GPU_OR_SKIP(gpu);
  const AttentionAttrs a{.batch = 2,
                         .q_len = 1,
                         .kv_len = 9,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 64,
                         .scale = 0.125};
  using op_cases::tensor;
  const OpCase c{.name = "attention",
                 .op = OpCode::attention,
                 .attrs = a,
                 .operands = {tensor({2, 128}), tensor({18, 64}), tensor({18, 64}),
                              op_cases::none(), op_cases::integers({2}, op_cases::Fill::ids, 9)}};
  Tensors inputs = op_cases::case_inputs(c, 3);
  inputs["in4"] = {-1, 4};
  const Tensors got = run_plan(op_cases::case_graph(c, Dtype::bf16), inputs, *gpu);
  double seen = 0;
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(got.at("out0")[i], 0) << i;
    seen += std::abs(got.at("out0")[128 + i]);
  }
  EXPECT_GT(seen, 1);
  EXPECT_EQ(got.at("out1")[0], -HUGE_VAL);
  EXPECT_EQ(got.at("out1")[1], -HUGE_VAL);
}

TEST(CacheWrite, rows_land_at_their_positions_and_those_outside_are_dropped) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const int64_t cols : {64, 33}) {
    using op_cases::tensor;
    const OpCase c{.name = "cache_write",
                   .op = OpCode::cache_write,
                   .attrs = CacheAttrs{.batch = 2, .capacity = 7},
                   .operands = {tensor({14, cols}), tensor({6, cols}),
                                op_cases::integers({6}, op_cases::Fill::ids, 7)}};
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
      Tensors inputs = op_cases::case_inputs(c, 4);
      inputs["in2"] = {0, 6, -1, 7, 3, 2};
      const Graph graph = op_cases::case_graph(c, dtype);
      expect_same(run_plan(graph, inputs, *gpu), run_plan(graph, inputs, scalar_backend()),
                  std::to_string(cols));
    }
  }
}

}  // namespace
}  // namespace octet::fusion
