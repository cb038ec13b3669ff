// Graphs that users build, by the names that they use: what octet/graph.h and Python share.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "passes/scalify/scalify.h"

namespace octet {

// Parsed and verified; what the verifier finds is the text's fault. Throws Error{invalid_argument}
// that names the file.
Graph read_graph(std::string_view text, const std::string& file = "graph");

// Throw Error{invalid_argument} for a dtype that is none, a name that the graph has already, and a
// value that is none of the graph's.
ValueId add_input(Graph& graph, InputKind kind, const std::string& name, const std::string& dtype,
                  const Shape& shape);
void add_output(Graph& graph, const std::string& name, ValueId value);
void expect_value(const Graph& graph, ValueId value, std::string_view what);

// Throws Error{invalid_argument} for a rounding that is none, and names that are no inputs.
ScalifyOptions scalify_options(const Graph& graph, const std::string& rounding,
                               const std::map<std::string, double>& input_rms,
                               const std::map<std::string, int>& input_scales);

}  // namespace octet
