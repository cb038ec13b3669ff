// Scale propagation through a differentiated graph: Logical -> Logical.
//
// Every float value becomes data and a power-of-two scale that the rules of its op choose at
// compile time (ir/scale.h, OpDef::scale), so that data stay near 1 in whatever dtype a recipe
// gives them. Scales meet the data in GEMMs' accumulators, in attention's softmax factor, in a
// norm's eps; where none of these is at hand, in the op rescale. Outputs are values again. In f32
// the result is the old graph's bit for bit, short of under- and overflow. Source: Balanca et al.
// 2024 (Scalify); docs/scalify.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/scale.h"

namespace octet {

struct ScalifyOptions {
  ScaleRounding rounding = ScaleRounding::predicted;
  // True if data take scales; where not, the graph stays as it is and the predictions alone are
  // wanted.
  bool carries = true;
  // log2 of the RMS that an input has at the start; absent: 0 (a value of its own scale).
  std::map<std::string, double> input_rms = {};
  // Inputs whose data come with the scale 2^k.
  std::map<std::string, int> input_scales = {};
  // Inputs whose data come with a scale of run time, a power of two: the input "NAME.scale", f32[].
  // Outputs that leave as data and scale, the output "NAME.scale".
  std::set<std::string> scaled_inputs = {}, scaled_outputs = {};
  // Of scaled inputs that are matrices: a scale a row, or a column; absent: one.
  std::map<std::string, Granularity> granularities = {};
  // Operands (node, slot) whose data are multiplied by a further 2^k.
  std::map<std::pair<NodeId, size_t>, int> rescales = {};
  // Gradients that leave a norm are rescaled by their norm, measured in the step.
  std::optional<RescaleNorm> norm_gradients = {};
  // Parameters' gradients are rounded to this dtype at their own scale, before they leave the graph
  // as values; rescaled by their norm first where `rescales_gradients`.
  std::optional<Dtype> gradients = {};
  bool rescales_gradients = false;
};

struct Scalified {
  Graph graph;
  // By value of the graph: log2 of the RMS that its data are predicted to have, and of its scale;
  // 0 where nothing is predicted.
  ById<double> data_rms;
  ById<int> scale;
  // The factor of run time that it has beside it, f32[], or [R, 1] or [1, C] where there is one a
  // row or a column; kNoValue: none.
  ById<ValueId> factor;
};

// log2 of the RMS that each parameter's gradient is predicted to have, by parameter, of a graph
// that hands gradients out.
std::map<std::string, double> predicted_gradients(const Graph& graph,
                                                  const std::map<std::string, double>& input_rms);

// Name of the scale of an input or output.
inline std::string scale_name(const std::string& name) {
  return name + ".scale";
}

// Throws Error(invalid_argument) where an op has no rule, naming it and its place.
Scalified scalify(const Graph& graph, const ScalifyOptions& options);

}  // namespace octet
