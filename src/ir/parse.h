// Reads the text that print() writes. Values may be numbered in any order; each must be defined
// before its use.
//
// Throws Error(invalid_argument, "file:line:column: expected ..., got ...") at the first mistake.
// Types that are said are read: run verify() on the result. Of a node without them, "%2 = exp(%1)",
// they are inferred as Builder does. Attributes that are left out keep their defaults; "#" starts a
// comment.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace octet {

Graph parse_graph(std::string_view text, const std::string& file = "graph");

// Appends a node, "%20, %21 = rms_norm(%3, %4) {eps = 1e-6}", whose operands are called by their
// ids in the graph, and gives its results by slot; how the text calls these is forgotten. The graph
// is as it was where it throws.
ValueIds append_node(Graph& graph, std::string_view text);

}  // namespace octet
