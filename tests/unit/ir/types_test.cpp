// Layouts of values, as types and the text of a graph say them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/ops/slots.h"
#include "ir/parse.h"
#include "ir/print.h"

namespace octet::ir_types_test {
namespace {

TensorType type_of(const std::string& text) {
  return parse_graph("graph \"g\" phase typed\n%0 = input batch \"x\" : " + text + "\n", "text")
      .type(0);
}

std::string refusal(const std::string& text) {
  try {
    parse_graph(text, "text");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return {};
}

std::string refused_type(const std::string& type) {
  return refusal("graph \"g\" phase typed\n%0 = input batch \"x\" : " + type + "\n");
}

TEST(Types, are_read_as_they_are_printed) {
  for (const char* text : {"bf16[8,16]", "bf16^T[8,16]", "e4m3:tensor^T[8,16]", "e4m3:1x16[8,16]",
                           "e5m2:tensor^T16[500,256]", "e4m3:128x128/f32^T[8,16]"}) {
    EXPECT_EQ(to_string(type_of(text)), text);
  }
}

TEST(Types, keep_the_logical_shape_of_what_lies_transposed) {
  const TensorType type = type_of("e4m3:tensor^T16[500,256]");
  EXPECT_EQ(type.shape, (Shape{500, 256}));
  EXPECT_EQ(type.stored_shape(), (Shape{256, 512}));
  EXPECT_EQ(type.n_elems(), 500 * 256);
  EXPECT_EQ(type.n_bytes(), 512 * 256);
  EXPECT_EQ(storage_text(type), "e4m3[256,512]");
  EXPECT_EQ(scale_type(type), (TensorType{Dtype::f32, {}}));
  EXPECT_EQ(read_shape(type, true), (Shape{256, 512}));
  EXPECT_EQ(read_shape(type, false), (Shape{512, 256}));
}

TEST(Types, of_layouts_that_cannot_be_are_refused) {
  EXPECT_THAT(refused_type("e4m3:tensor^T[8]"), testing::HasSubstr("a matrix"));
  EXPECT_THAT(refused_type("e4m3:tensor^T0[8,16]"), testing::HasSubstr("a pad from 1"));
  EXPECT_THAT(refused_type("e4m3:tensor^T1099511627776[8,1048576]"),
              testing::HasSubstr("at most 2^48 elements"));
}

// Attributes said of results what their types say.
TEST(Types, stand_where_attributes_stood) {
  for (const char* attribute : {"dtype = e4m3", "rows = 1", "scales = bf16", "transposed = false",
                                "pad = 16", "kept_group = 16"}) {
    const std::string text =
        std::string("graph \"g\" phase typed\n%0 = input batch \"x\" : f32[2,3]\n") +
        "%1 = input batch \"s\" : f32[]\n%2 = quantize(%0, %1) {" + attribute +
        "} : e4m3:tensor[2,3] @ forward\n";
    EXPECT_THAT(refusal(text), testing::HasSubstr("the type of the result to say it")) << attribute;
  }
}

// Attention had one length, `seq`, a flag `causal`, and documents alone for ranges.
TEST(FormerText, attention_of_one_length_is_read) {
  const auto attrs_of = [](const std::string& operands, const std::string& said) {
    const Graph graph = parse_graph(
        "graph \"g\" phase logical\n%0 = input batch \"x\" : real[48,32]\n"
        "%1 = input batch \"starts\" : i32[48]\n%2, %3 = attention(%0, %0, %0" +
            operands + ") {batch = 2, " + said + ", heads = 4, kv_heads = 4, head_dim = 8} : " +
            "real[48,32], real[192] @ layer 0, forward, \"attention\"\noutput \"y\" %2\n",
        "text");
    EXPECT_EQ(graph.nodes[0].in(Attention::key_begins) != kNoValue, !operands.empty());
    EXPECT_EQ(print(parse_graph(print(graph), "printed")), print(graph));
    return std::get<AttentionAttrs>(graph.nodes[0].attrs);
  };
  AttentionAttrs want{.batch = 2, .q_len = 24, .kv_len = 24, .heads = 4, .kv_heads = 4};
  want.head_dim = 8;
  EXPECT_EQ(attrs_of(", doc_starts = %1", "seq = 24, causal = true"), want);
  want.mask = AttentionMask::full;
  EXPECT_EQ(attrs_of("", "seq = 24, causal = false, capacity = 0"), want);
  want.kv_len = 64, want.mask = AttentionMask::causal;
  EXPECT_EQ(attrs_of("", "seq = 24, causal = true, capacity = 64"), want);
  EXPECT_EQ(attrs_of("", "q_len = 24, kv_len = 64, mask = causal"), want);
}

}  // namespace
}  // namespace octet::ir_types_test
