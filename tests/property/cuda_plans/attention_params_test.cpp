// The arithmetic of attention's scratch, and what tells two problems apart.
#include "backends/cuda/params/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace octet::cuda {
namespace {

TEST(AttentionParams, dp_has_two_bytes_an_element_of_queries_by_64_and_keys_by_128) {
  AttentionParams p{.batch = 3, .heads = 5, .kv_heads = 5, .head_dim = 64, .dtype = Dtype::bf16};
  struct Case {
    int64_t seq, queries, keys;
  };
  const Case cases[] = {{1, 64, 128},    {64, 64, 128},   {65, 128, 128},
                        {128, 128, 128}, {129, 192, 256}, {2047, 2048, 2048}};
  for (const Case& c : cases) {
    p.q_len = p.kv_len = c.seq;
    EXPECT_EQ(attention_dp_bytes(p), 2 * 15 * c.queries * c.keys) << c.seq;
  }
}

TEST(AttentionParams, dp_counts_query_heads_where_heads_share_keys) {
  AttentionParams p{.batch = 2, .q_len = 512, .heads = 32, .kv_heads = 32, .head_dim = 128};
  p.kv_len = 512;
  p.dtype = Dtype::fp16;
  const int64_t own = attention_dp_bytes(p);
  p.kv_heads = 4;
  EXPECT_EQ(attention_dp_bytes(p), own);
  EXPECT_EQ(own, int64_t{2} * 64 * 512 * 512);
}

TEST(AttentionParams, dp_up_to_the_limit_is_reserved_and_beyond_it_none) {
  AttentionParams p{.batch = 16, .q_len = 2048, .heads = 32, .kv_heads = 32, .head_dim = 128};
  p.kv_len = 2048;
  p.dtype = Dtype::bf16;
  EXPECT_EQ(attention_dp_bytes(p), kMaxDpBytes);
  p.q_len = p.kv_len = 2049;
  EXPECT_EQ(attention_dp_bytes(p), 0);
  p.q_len = p.kv_len = 1 << 20;
  EXPECT_EQ(attention_dp_bytes(p), 0);
}

TEST(AttentionParams, dp_is_not_reserved_where_our_own_kernel_runs) {
  AttentionParams p{.batch = 2, .q_len = 512, .heads = 4, .kv_heads = 4, .head_dim = 64};
  p.kv_len = 512;
  EXPECT_EQ(attention_dp_bytes(p), 0);  // f32
  p.dtype = Dtype::bf16;
  EXPECT_GT(attention_dp_bytes(p), 0);
  for (const int64_t head_dim : {68, 136}) {
    p.head_dim = head_dim;
    EXPECT_EQ(attention_dp_bytes(p), 0) << head_dim;
  }
  p.head_dim = 64, p.key_begins = true;
  EXPECT_EQ(attention_dp_bytes(p), 0);
}

// A text's queries over a source's keys. Causal masks of two lengths are not those of the library.
TEST(AttentionParams, full_attention_of_two_lengths_is_the_librarys) {
  AttentionParams p{.batch = 2, .q_len = 64, .heads = 4, .kv_heads = 2, .head_dim = 64};
  p.kv_len = 512, p.dtype = Dtype::bf16, p.causal = false;
  EXPECT_TRUE(library_may_take(p));
  EXPECT_EQ(attention_dp_bytes(p), 2 * 8 * 64 * 512);
  // dk and dv of every query head have as many rows as there are keys.
  AttentionParams fewer = p;
  fewer.kv_len = 128;
  EXPECT_EQ(attention_grad_scratch_bytes(p) - attention_grad_scratch_bytes(fewer),
            int64_t{2} * 4 * 8 * (512 - 128) * 64);
  AttentionParams others[] = {p, p, p, p, p};
  others[0].causal = true;
  others[1].window = 8;
  others[2].key_ends = true;
  others[3].bias.is_there = true;
  others[4].cached = true;
  for (const AttentionParams& other : others) EXPECT_FALSE(library_may_take(other));
}

// The module keeps the library's plans by them; scales may agree in all their printed digits.
TEST(AttentionParams, problems_that_differ_in_one_field_are_different) {
  const AttentionParams base{.batch = 1, .q_len = 2, .heads = 4, .kv_heads = 2, .scale = 1e-7f};
  std::vector<AttentionParams> others(14, base);
  others[0].batch = 2;
  others[1].q_len = 3;
  others[2].heads = 2;
  others[3].kv_heads = 4;
  others[4].head_dim = 8;
  others[5].scale = std::nextafter(base.scale, 1.0f);
  others[6].dtype = Dtype::bf16;
  others[7].causal = false;
  others[8].key_begins = true;
  others[9].window = 1;
  others[10].kv_len = 3;
  others[11].key_ends = true;
  others[12].bias.is_there = true;
  others[13].cached = true;
  const AttentionParams same = base;
  EXPECT_FALSE(base < same || same < base);
  for (const AttentionParams& other : others) EXPECT_TRUE(base < other || other < base);
}

}  // namespace
}  // namespace octet::cuda
