// Which attention gets a KV cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/compose.h"
#include "ir/builder.h"
#include "ir/caches.h"
#include "ir/parse.h"
#include "ir/print.h"

namespace octet::compile_with_cache_test {
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
  try {
    with_cache(graph_of(AttentionMask::full, AttentionKeys::appended), kSize);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), testing::HasSubstr("of a full mask"));
  }
}

// Queries of a text and keys of a source, both made by a node.
Graph graph_with_source() {
  return parse_graph(
      R"(graph "text" phase typed
%0 = input batch "positions" : i32[6]
%1 = input batch "x" : bf16[6,8]
%2 = input batch "source" : bf16[10,8]
%3 = neg(%1) : bf16[6,8]
%4 = neg(%2) : bf16[10,8] @ layer 4, forward, "k"
%5 = square(%2) : bf16[10,8] @ layer 4, forward, "v"
%6, %7 = attention(%3, %4, %5) {)"
      R"(batch = 2, q_len = 3, kv_len = 5, heads = 2, kv_heads = 2, head_dim = 4, )"
      R"(mask = full, keys = fixed} : bf16[6,8], f32[12] @ layer 4, forward, "a"
output "y" %6
)",
      "text");
}

std::vector<OpCode> ops_of(const Graph& graph) {
  std::vector<OpCode> ops;
  for (const Node& node : graph.nodes) ops.push_back(node.op);
  return ops;
}

TEST(WithCache, fixed_keys_are_read_and_what_made_them_goes) {
  const Graph graph = with_cache(graph_with_source(), kSize);
  EXPECT_EQ(ops_of(graph), (std::vector{OpCode::neg, OpCode::attention}));
  const Node& attention = graph.nodes[1];
  EXPECT_EQ(graph.input_of(attention.in(Attention::k))->name, "kv_cache:4.ck.2x5");
  EXPECT_EQ(graph.input_of(attention.in(Attention::v))->name, "kv_cache:4.cv.2x5");
  EXPECT_EQ(graph.type(attention.in(Attention::k)).shape, (Shape{10, 8}));
  ASSERT_EQ(graph.outputs.size(), 1u);  // nothing is written
  EXPECT_EQ(graph.outputs[0].name, "y");
}

TEST(WithCache, the_source_is_encoded_into_its_caches_alone) {
  const Graph graph = encode_source(graph_with_source(), kSize);
  EXPECT_EQ(ops_of(graph), (std::vector{OpCode::neg, OpCode::square}));
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.input_of(graph.outputs[0].updates)->name, "kv_cache:4.ck.2x5");
  EXPECT_EQ(graph.outputs[0].value, graph.nodes[0].out(0));
  EXPECT_EQ(graph.outputs[1].value, graph.nodes[1].out(0));
  EXPECT_TRUE(is_source_cache("4.ck.2x5"));
  EXPECT_FALSE(is_source_cache("4.k.2x5"));
}

TEST(WithCache, a_call_may_write_fixed_keys_and_read_what_it_wrote) {
  const Graph graph = with_cache(graph_with_source(), kSize, FixedKeys::written);
  ASSERT_EQ(graph.nodes.size(), 4u);
  EXPECT_EQ(graph.nodes[3].in(Attention::k), graph.nodes[1].out(0));
  EXPECT_EQ(graph.outputs.size(), 3u);
}

TEST(WithCache, a_model_without_a_source_has_none_to_encode) {
  try {
    encode_source(graph_of(AttentionMask::causal, AttentionKeys::appended), kSize);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace octet::compile_with_cache_test
