// Which attention gets a KV cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/compose.h"
#include "ir/builder.h"
#include "ir/print.h"

namespace octet {
namespace {

constexpr BatchSize kSize = {.batch = 2, .seq = 3, .cache = 8};

Graph graph_of(AttentionMask mask, AttentionKeys keys) {
  Graph graph;
  graph.name = "text", graph.phase = Phase::typed;
  Builder b(graph);
  b.input(InputKind::batch, "positions", {.dtype = Dtype::i32, .shape = {6}});
  const ValueId x = b.input(InputKind::batch, "x", {.dtype = Dtype::bf16, .shape = {6, 8}});
  const AttentionAttrs attrs{.batch = 2,
                             .q_len = 3,
                             .kv_len = 3,
                             .heads = 2,
                             .kv_heads = 2,
                             .head_dim = 4,
                             .mask = mask,
                             .keys = keys};
  b.output("y", b.emit(OpCode::attention, attrs, {x, x, x})[Attention::o]);
  return graph;
}

TEST(WithCache, appended_keys_are_written_into_a_cache_and_read_from_it) {
  const Graph graph = with_cache(graph_of(AttentionMask::causal, AttentionKeys::appended), kSize);
  ASSERT_EQ(graph.nodes.size(), 3u);  // two writes
  EXPECT_EQ(graph.nodes[0].op, OpCode::cache_write);
  EXPECT_NE(graph.nodes[2].in(Attention::positions), kNoValue);
  EXPECT_EQ(std::get<AttentionAttrs>(graph.nodes[2].attrs).kv_len, kSize.cache);
}

TEST(WithCache, attention_of_own_keys_stays_as_it_is) {
  const Graph whole = graph_of(AttentionMask::full, AttentionKeys::own);
  EXPECT_EQ(print(with_cache(whole, kSize)), print(whole));
}

TEST(WithCache, keys_that_no_function_would_write_are_refused) {
  for (const auto& [mask, keys] : {std::pair(AttentionMask::full, AttentionKeys::fixed),
                                   std::pair(AttentionMask::full, AttentionKeys::appended)}) {
    try {
      with_cache(graph_of(mask, keys), kSize);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), testing::HasSubstr("of a full mask"));
    }
  }
}

}  // namespace
}  // namespace octet
