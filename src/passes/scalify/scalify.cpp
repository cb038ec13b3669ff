#include "passes/scalify/scalify.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/op_def.h"
#include "ir/ops/axis_scales.h"
#include "ir/ops/scale_rules.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

// True if y has x's scale, whatever that is: then x is wanted as y's readers want it.
bool hands_on(const Node& node) {
  const bool moves_x = op_def(node.op).moves && node.operands.size() == 1;
  return moves_x || node.op == OpCode::broadcast || node.op == OpCode::bias_add;
}

bool takes_out_factors(OpCode op, const std::vector<Scaled>& in) {
  return op == OpCode::concatenate || (op == OpCode::add && in[0].factor != in[1].factor);
}

// Values that a reader, or the world outside, wants with scale 1.
ById<bool> wanted_unscaled(const Graph& graph, const ScalifyOptions& options) {
  ById<bool> is_wanted(graph.values.size(), false);
  const auto want = [&](ValueId id) {
    if (id != kNoValue) is_wanted[id] = true;
  };
  for (const GraphOutput& output : graph.outputs) {
    const bool keeps_scale = options.scaled_outputs.contains(output.name) ||
                             (options.gradients && is_gradient_name(output.name));
    if (!keeps_scale) want(output.value);
  }
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const OpDef& def = op_def(node->op);
    for (size_t i = 0; i < node->operands.size(); ++i) {
      if (def.needs_unscaled.contains(i)) want(node->operands[i]);
    }
    if (hands_on(*node) && is_wanted[node->results[0]]) want(node->operands[0]);
  }
  return is_wanted;
}

class Propagation {
 public:
  Propagation(const Graph& graph, const ScalifyOptions& options)
      : rewriter_(graph),
        scaler_(rewriter_.builder(), options.rounding, options.carries),
        options_(options),
        is_wanted_unscaled_(wanted_unscaled(graph, options)),
        values_(graph.values.size()) {
    if (!options.gradients) return;
    for (const GraphOutput& output : graph.outputs) {
      if (is_gradient_name(output.name)) rounded_.emplace(output.value, kNoValue);
    }
  }

  Scalified run() {
    const Graph& from = rewriter_.from();
    for (const GraphInput& input : from.inputs) enter(input);
    for (size_t n = 0; n < from.nodes.size(); ++n) propagate(static_cast<NodeId>(n));
    std::vector<GraphOutput> outputs;
    for (const GraphOutput& output : from.outputs) {
      scaler_.b.tag = tag_of(output.value);
      if (options_.scaled_outputs.contains(output.name)) {
        const Scaled& x = values_[output.value];
        const ValueId scale = scaler_.multiplier(x.log2, x.factor);
        outputs.push_back(
            {.name = output.name, .value = x.data, .updates = rewriter_.map(output.updates)});
        outputs.push_back({.name = scale_name(output.name),
                           .value = scale == kNoValue ? scaler_.constant(0) : scale});
        continue;
      }
      const auto rounded = rounded_.find(output.value);
      const bool is_rounded =
          is_gradient_name(output.name) && rounded != rounded_.end() && rounded->second != kNoValue;
      outputs.push_back({.name = output.name,
                         .value = is_rounded ? rounded->second : unscaled_of(output.value),
                         .updates = rewriter_.map(output.updates)});
    }
    Scalified result{
        .graph = rewriter_.finish_without_outputs(), .data_rms = {}, .scale = {}, .factor = {}};
    result.graph.outputs = std::move(outputs);
    rms_.resize(result.graph.values.size(), 0);
    scale_.resize(result.graph.values.size(), 0);
    factor_.resize(result.graph.values.size(), kNoValue);
    result.data_rms = std::move(rms_);
    result.scale = std::move(scale_);
    result.factor = std::move(factor_);
    return result;
  }

 private:
  Tag tag_of(ValueId id) const {
    const Node* producer = rewriter_.from().producer(id);
    return producer == nullptr ? Tag{} : producer->tag;
  }

  bool is_real(ValueId id) const { return is_float(rewriter_.from().type(id).dtype); }

  void enter(const GraphInput& input) {
    Scaled& x = values_[input.value];
    x.data = rewriter_.map(input.value);
    if (!is_real(input.value)) return;
    if (const auto it = options_.input_scales.find(input.name); it != options_.input_scales.end())
      x.log2 = it->second;
    const auto rms = options_.input_rms.find(input.name);
    x.predicted = rms != options_.input_rms.end() ? rms->second : x.log2;
    if (options_.scaled_inputs.contains(input.name)) {
      TensorType scales{.dtype = Dtype::real, .shape = {}};
      const auto by = options_.granularities.find(input.name);
      if (by != options_.granularities.end()) {
        const Shape& shape = rewriter_.from().type(input.value).shape;
        scales.shape =
            scale_type({.dtype = Dtype::f32, .shape = shape, .granularity = by->second}).shape;
      }
      x.factor = scaler_.b.input(InputKind::batch, scale_name(input.name), scales);
    }
    note(x);
  }

  void note(const Scaled& x) {
    if (x.data == kNoValue) return;
    const auto at = static_cast<size_t>(x.data);
    if (rms_.size() <= at) {
      rms_.resize(at + 1, 0), scale_.resize(at + 1, 0);
      factor_.resize(at + 1, kNoValue);
    }
    rms_[at] = x.is_any || !std::isfinite(x.predicted) ? 0 : x.predicted - x.log2;
    scale_[at] = x.log2;
    factor_[at] = x.factor;
  }

  ValueId unscaled_of(ValueId id) {
    Scaled& x = values_[id];
    if (const auto made = made_unscaled_.find(id); made != made_unscaled_.end())
      return made->second.data;
    if (!is_real(id) || (x.log2 == 0 && x.factor == kNoValue)) return x.data;
    const auto [it, added] = made_unscaled_.try_emplace(id);
    if (added) note(it->second = as_value(x));
    return it->second.data;
  }

  // Gradients that recipes rescale in the step (f32 where they are graph outputs) take two
  // rescales, as in the plans of runs that have begun.
  Scaled as_value(const Scaled& x) {
    return options_.norm_gradients ? scaler_.at(scaler_.without_factor(x), 0) : scaler_.unscaled(x);
  }

  // A parameter's gradient as it is kept until its update, as soon as it is made: data and scale of
  // which the value is made anew. Other readers take what was not rounded.
  void round_gradient(ValueId id) {
    Scaled g = ops::scale::at_one_scale(scaler_, values_[id]);
    if (g.is_any) return;
    g = options_.rescales_gradients
            ? ops::scale::rescaled_by_norm(scaler_, g,
                                           options_.norm_gradients.value_or(RescaleNorm::l2))
            : scaler_.at(g, scaler_.choose(g.predicted));
    g.data = scaler_.b.emit1(OpCode::cast_in, CastInAttrs{.dtype = *options_.gradients}, {g.data});
    note(g);
    const Scaled value = scaler_.unscaled(g);
    note(value);
    rounded_.at(id) = value.data;
  }

  void propagate(NodeId n) {
    const Node& node = rewriter_.from().node(n);
    const OpDef& def = op_def(node.op);
    if (def.scale == nullptr) {
      throw Error(ErrorCode::invalid_argument, "[scalify] {} has no scale rule: layer {}, '{}'",
                  def.name, node.tag.layer, node.tag.origin);
    }
    scaler_.b.tag = node.tag;
    std::vector<Scaled> in;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId id = node.operands[i];
      if (id == kNoValue) {
        in.emplace_back();
        continue;
      }
      Scaled x = values_[id];
      if (def.needs_unscaled.contains(i) && is_real(id)) {
        const ValueId data = unscaled_of(id);
        x.data = data, x.log2 = 0, x.factor = kNoValue;
      }
      const auto rescale = options_.rescales.find({n, i});
      if (rescale != options_.rescales.end()) x = scaler_.at(x, x.log2 - rescale->second);
      in.push_back(x);
    }
    in = ops::scale::with_axis_scales(scaler_, rewriter_.from(), node, std::move(in));
    // Where every norm's gradient is rescaled in the step, gradients meet at scales that are
    // predicted: their factors are products over the depth.
    if (options_.norm_gradients && takes_out_factors(node.op, in))
      for (Scaled& x : in) x = scaler_.without_factor(x);
    const ValueId first = node.results[0];
    std::vector<Scaled> results =
        def.scale(scaler_, {.graph = rewriter_.from(),
                            .node = node,
                            .in = in,
                            .wants_unscaled = is_wanted_unscaled_[first]});
    CHECK(results.size() >= node.results.size());
    if (is_norm_gradient(node.op) && options_.norm_gradients)
      results[0] = ops::scale::rescaled_by_norm(scaler_, results[0], *options_.norm_gradients);
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] == kNoValue) continue;
      note(values_[node.results[i]] = results[i]);
    }
    for (const ValueId id : node.results) {
      if (id != kNoValue && rounded_.contains(id)) round_gradient(id);
    }
  }

  Rewriter rewriter_;
  Scaler scaler_;
  const ScalifyOptions& options_;
  ById<bool> is_wanted_unscaled_;  // by value of the old graph
  ById<Scaled> values_;            // as well
  std::map<ValueId, Scaled> made_unscaled_;
  std::map<ValueId, ValueId> rounded_;  // gradients that leave so -> their values, once made
  ById<double> rms_;                    // by value of the new graph
  ById<int> scale_;
  ById<ValueId> factor_;
};

}  // namespace

Scalified scalify(const Graph& graph, const ScalifyOptions& options) {
  CHECK(graph.phase == Phase::logical);
  return Propagation(graph, options).run();
}

std::map<std::string, double> predicted_gradients(const Graph& graph,
                                                  const std::map<std::string, double>& input_rms) {
  const Scalified predicted = scalify(graph, {.carries = false, .input_rms = input_rms});
  std::map<std::string, double> rms;
  for (const GraphOutput& output : predicted.graph.outputs) {
    if (const auto parameter = gradient_parameter(output.name))
      rms[*parameter] = predicted.data_rms[output.value];
  }
  return rms;
}

}  // namespace octet
