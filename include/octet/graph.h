// Functions of one's own: differentiated, scaled and quantized by Octet's passes, and run on
// arrays. examples/scaled_function.cpp is an example; docs/scalify.md has the rules of scales.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "octet/machine.h"

namespace octet {

// One of a function's values.
struct GraphValue {
  int32_t id = -1;  // -1: a result that the op does not have
};

struct ScalifySettings {
  std::string rounding = "predicted";            // of scales: predicted, nearest, paper (down), up
  std::map<std::string, double> input_rms = {};  // log2 of the RMS that an input has; 0 without
  std::map<std::string, int> input_scales = {};  // log2 of the scale that its data come with
  // Inputs that come, and outputs that leave, as data and a scale of run time: "NAME.scale" is a
  // further input or output, a number. Such states keep their scales from call to call.
  std::vector<std::string> scaled_inputs = {}, scaled_outputs = {};
  // Of scaled inputs that are matrices [R, C]: "row", a scale a row, or "channel", one a column;
  // "NAME.scale" is then [R, 1] or [1, C]. Absent: "tensor", one.
  std::map<std::string, std::string> granularities = {};
};

// f32[] of the scales of inputs: nodes of the function that a rule is part of.
using ScaleProgram = std::function<GraphValue(const std::vector<GraphValue>& scales)>;

// A function of named arrays: inputs, nodes of Octet's ops in order, named outputs. A value: copies
// share nothing. All throw Error{invalid_argument} for what does not fit, naming op and operand.
class GraphFunction {
 public:
  explicit GraphFunction(const std::string& name = "graph");
  // Parses the text that text() and `octet opt` print; types that it does not say are inferred.
  static GraphFunction parse(const std::string& text);

  // dtype: real (numbers, whose type a recipe chooses), i32 for indices and labels, or a type of
  // storage as f32, bf16, e4m3.
  GraphValue input(const std::string& name, const std::vector<int64_t>& shape,
                   const std::string& dtype = "real");
  // An input that the pass autodiff differentiates by: its gradient is the output "grad:NAME".
  GraphValue parameter(const std::string& name, const std::vector<int64_t>& shape);
  // A node, and its results by slot. Operands in the order of the op's slots, {} for an optional
  // one that is absent; attributes as in the text: "trans_b = true, role = forward".
  std::vector<GraphValue> nodes(const std::string& op, const std::vector<GraphValue>& operands,
                                const std::string& attributes = "");
  // Its first result.
  GraphValue node(const std::string& op, const std::vector<GraphValue>& operands,
                  const std::string& attributes = "");
  // autodiff differentiates "loss", which is a scalar.
  void output(const std::string& name, GraphValue value);
  void erase_output(const std::string& name);
  // Inputs and outputs of these names, behind passes too.
  GraphValue input_value(const std::string& name) const;
  GraphValue output_value(const std::string& name) const;

  // Primitives of scales; each means its operand without scalify(). Those of one node are ops:
  // set_scale (with a second operand: a scale of run time), rebalance, dynamic_rescale, cast_in,
  // data_scale, stop_scaling (docs/scalify.md).
  //
  // x by the norm that the call before measured; norm: l2, l1, max; direction: forward, backward.
  // The state is the input "rescale_factor:SITE", 0 at first; "next:rescale_factor:SITE" is the
  // output that the next call takes.
  GraphValue delayed_rescale(GraphValue x, const std::string& site, const std::string& norm = "l2",
                             const std::string& direction = "forward");
  // x by the norm that each of its rows, or columns, has in the call; granularity: row, channel.
  GraphValue axis_rescale(GraphValue x, const std::string& granularity,
                          const std::string& norm = "l2");
  // x by a norm that is measured every so many calls, likewise; a second state ends in ".calls".
  GraphValue periodic_rescale(GraphValue x, const std::string& site, int64_t calls,
                              const std::string& norm = "l2");
  // f(inputs) at the scale that a program gives; the gradient of input i at that of the result's
  // gradient times what gradients[i] gives. Scales are rounded to the nearest power of two.
  GraphValue custom_scale(const std::function<GraphValue(const std::vector<GraphValue>& inputs)>& f,
                          const std::vector<GraphValue>& inputs, const ScaleProgram& rule,
                          const std::vector<ScaleProgram>& gradients = {});
  // Data and scale of the value go to CompiledGraph::on_debug at every call.
  void debug(const std::string& name, GraphValue value);

  std::vector<int64_t> shape(GraphValue value) const;
  std::string text() const;

  // Behind these passes, in order: `octet opt --list` has their names.
  GraphFunction passes(const std::vector<std::string>& names) const;
  // Every value as data and a power-of-two scale that its op's rule chooses; outputs are values
  // again. In f32 the outputs are those of this function to the bit, short of under- and overflow.
  GraphFunction scalify(const ScalifySettings& settings = {}) const;
  // log2 of a value's scale in a function that scalify() returned; 0 in others.
  int scale(GraphValue value) const;
  int scale(const std::string& output) const;
  // The shape of its scale: {} for one, {R, 1} for one a row, {1, C} for one a column. Where that
  // is measured in the call, or comes with an input, it is beside what scale() says.
  std::vector<int64_t> scale_shape(GraphValue value) const;

 private:
  friend class CompiledGraph;
  struct State;
  State& own();
  std::shared_ptr<State> state_;  // shared by copies until one changes
};

// Row-major. Numbers of inputs are rounded once to the input's type; of outputs each is exact.
// 8-bit formats have their codes, 0 to 255.
struct GraphArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// A value as data and scale, a power of two. scales: further powers of two, of rows [R, 1] or of
// columns [1, C]; without values: none.
struct ScaledArray {
  GraphArray data;
  double scale = 1;
  GraphArray scales = {};
  // Throws Error{invalid_argument} for scales of another shape.
  GraphArray value() const;
};
// At the power of two that is next to its RMS; at 1 where that is 0 or not finite.
ScaledArray scaled(const GraphArray& array);

// A function with a kernel for each node, and its memory. Values without types are f32. One call at
// a time.
class CompiledGraph {
 public:
  // Throws Error as Machine does, and Error{invalid_argument} for a function of several ranks.
  CompiledGraph(const GraphFunction& function, const Machine& machine);
  ~CompiledGraph();
  CompiledGraph(CompiledGraph&&) noexcept;
  CompiledGraph& operator=(CompiledGraph&&) noexcept;

  // The outputs by name, of an array for each input; equal at every call. Throws one
  // Error{invalid_argument} for all that does not fit, before it runs.
  std::map<std::string, GraphArray> operator()(const std::map<std::string, GraphArray>& inputs);
  // The same of arrays with scales. An input that scalify() gave no scale of its own takes data
  // times scale, and such an output has the scale 1.
  std::map<std::string, ScaledArray> scaled(const std::map<std::string, ScaledArray>& inputs);

  // Called for each value that the function names to debug(), in their order, before results are
  // returned. Without it, such values are dropped.
  using Debug = std::function<void(const std::string& name, const ScaledArray& array)>;
  void on_debug(Debug debug);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace octet
