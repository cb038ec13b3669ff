// Layers of several stacks are matched by their own names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/parse.h"
#include "passes/precision/policy.h"

namespace octet::passes_stack_override_test {
namespace {

TEST(StackOverride, matches_layers_by_the_names_of_their_stacks) {
  const Graph graph = parse_graph(R"(graph "g" phase typed
%0 = input parameter "w" : bf16[4,4]
%1 = input batch "x" : bf16[4,4]
%2 = gemm(%1, %0) {role = forward} : bf16[4,4] @ layer 0 "encoder.layers.0", forward, "q"
%3 = gemm(%2, %0) {role = forward} : bf16[4,4] @ layer 1 "decoder.layers.0", forward, "q"
output "y" %3
)",
                                  "text");
  EXPECT_EQ(linear_name(graph.nodes[0]), "encoder.layers.0.q");
  const auto check = [&](std::string pattern) {
    check_overrides("coat", {}, graph,
                    {{.pattern = std::move(pattern), .formats = LinearFormats()}});
  };
  EXPECT_NO_THROW(check("encoder.layers.*"));
  EXPECT_NO_THROW(check("decoder.layers.0.q"));
  try {
    check("layers.0.*");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("such as encoder.layers.0.q"));
  }
}

}  // namespace
}  // namespace octet::passes_stack_override_test
