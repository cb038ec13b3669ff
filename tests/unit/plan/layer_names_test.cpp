// Layers of several stacks have names of their own, in texts and in reports.
#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "plan/report.h"

namespace octet::plan_layer_names_test {
namespace {

constexpr std::string_view kTwoStacks = R"(graph "g" phase typed
%0 = input parameter "w" : bf16[4,4]
%1 = input batch "x" : bf16[4,4]
%2 = gemm(%1, %0) {role = forward} : bf16[4,4] @ layer 0 "encoder.layers.0", forward, "q"
%3 = gemm(%2, %0) {role = forward} : bf16[4,4] @ forward, "between"
%4 = gemm(%3, %0) {role = forward} : bf16[4,4] @ layer 1 "decoder.layers.0", forward, "q"
%5 = gemm(%4, %0) {role = forward} : bf16[4,4] @ layer 2 "decoder.layers.1", forward, "q"
%6 = add(%3, %5) : bf16[4,4] @ layer 2 "decoder.layers.1", backward
%7 = add(%3, %6) : bf16[4,4] @ layer 1 "decoder.layers.0", backward
output "y" %7
)";

TEST(LayerNames, are_printed_and_read_where_they_are_set) {
  const Graph graph = parse_graph(kTwoStacks, "text");
  EXPECT_NE(print(graph).find("@ layer 1 \"decoder.layers.0\", forward, \"q\""), std::string::npos);
  EXPECT_EQ(parse_graph(print(graph), "again"), graph);
  EXPECT_EQ(graph.nodes[2].tag.layer_name, "decoder.layers.0");
  EXPECT_EQ(layer_name(graph.nodes[2].tag), "decoder.layers.0");
  EXPECT_EQ(layer_text(graph.nodes[2].tag), "decoder.layers.0");
  EXPECT_EQ(layer_name({.layer = 3}), "layers.3");
  EXPECT_EQ(layer_text({.layer = 3}), "layer 3");
  EXPECT_EQ(layer_text({}), "");
}

TEST(LayerNames, stand_beside_what_layers_keep) {
  const Graph graph = parse_graph(kTwoStacks, "text");
  EXPECT_EQ(layer_names(graph),
            (std::vector<std::string>{"encoder.layers.0", "decoder.layers.0", "decoder.layers.1"}));
  // %3 is made between the stacks: of the two layers that read it the first one keeps it.
  EXPECT_EQ(kept_per_layer(graph), (std::vector<int64_t>{0, 32, 32}));
}

}  // namespace
}  // namespace octet::plan_layer_names_test
