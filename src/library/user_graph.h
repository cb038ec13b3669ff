// Graphs that users build, by the names that they use: what octet/graph.h and Python share.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "octet/graph.h"
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

void erase_output(Graph& graph, const std::string& name);

// Throws Error{invalid_argument} for a rounding or a granularity that is none, names that are no
// inputs or outputs, and those of a scale that the graph has already.
ScalifyOptions scalify_options(const Graph& graph, const ScalifySettings& settings);
// Of each value's scale: {}, or [R, 1] or [1, C] of a matrix.
std::vector<Shape> scale_shapes(const Scalified& scalified);

// x rebalanced by the factor of the call before (ir/custom_scale.h).
ValueId delayed_rescale(Graph& graph, ValueId x, const std::string& site, const std::string& norm,
                        const std::string& direction);
// x at the scale that its norm had when it was last measured, at the first call and every `calls`
// after it. The states "rescale_factor:<site>" and "rescale_factor:<site>.calls" keep it.
ValueId periodic_rescale(Graph& graph, ValueId x, const std::string& site, int64_t calls,
                         const std::string& norm);

// x at a scale a row or a column, which the norm of each is when it runs: granularity row or
// channel, norm l2, l1, max. Throws Error{invalid_argument} for others, and for what is no matrix.
ValueId axis_rescale(Graph& graph, ValueId x, const std::string& granularity,
                     const std::string& norm);

// A rule as a program: f32[] of the inputs' scales, f32[] each. The result is rounded to a power of
// two.
using ScaleRuleOnIds = std::function<ValueId(const ValueIds& scales)>;
// f(inputs) at the scale of `rule`; the gradient of input i at the scale of the gradient that comes
// in times what gradients[i] gives. No gradients: as the ops' own rules say. `f` and the programs
// append to the same graph.
ValueId scaled_by(Graph& graph, const std::function<ValueId(const ValueIds& inputs)>& f,
                  const ValueIds& inputs, const ScaleRuleOnIds& rule,
                  const std::vector<ScaleRuleOnIds>& gradients);

// The outputs that say data and scale of a value: a caller prints them, and they are no results.
inline constexpr std::string_view kDebugOutput = "debug:";
void add_debug_output(Graph& graph, const std::string& name, ValueId value);

}  // namespace octet
