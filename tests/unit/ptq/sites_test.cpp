// Which linears are quantized together.
#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ptq/linears.h"

namespace octet::ptq_sites {
namespace {

// Layers of a decoder that read the last rows of one encoder: each layer's keys and values are a
// site, as the layers before must be quantized first.
TEST(PtqSites, linears_of_two_layers_that_read_one_value_are_two_sites) {
  const Graph graph = parse_graph(R"(graph "g" phase typed
%0 = input parameter "a.k.weight" : f32[4,4]
%1 = input parameter "a.v.weight" : f32[4,4]
%2 = input parameter "b.k.weight" : f32[4,4]
%3 = input batch "x" : f32[4,4]
%4 = gemm(%3, %0) {role = forward} : f32[4,4] @ layer 0 "decoder.layers.0", forward, "k"
%5 = gemm(%3, %1) {role = forward} : f32[4,4] @ layer 0 "decoder.layers.0", forward, "v"
%6 = gemm(%3, %2) {role = forward} : f32[4,4] @ layer 1 "decoder.layers.1", forward, "k"
%7 = add(%4, %6) : f32[4,4] @ layer 1 "decoder.layers.1", forward, "residual"
output "y" %5
output "z" %7
)",
                                  "text");
  const std::vector<PtqSite> sites =
      find_sites(graph, {.keep = {}, .prefix = "", .residual = true});
  ASSERT_EQ(sites.size(), 3u);
  EXPECT_EQ(site_name(sites[0]), "decoder.layers.0.k, v");
  EXPECT_EQ(site_name(sites[1]), "decoder.layers.1.k");
  EXPECT_EQ(site_name(sites[2]), "decoder.layers.1.residual.0");
}

}  // namespace
}  // namespace octet::ptq_sites
