#include "passes/autodiff.h"

#include <algorithm>

#include "base/error.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

// Which values the wanted inputs reach: only those need a gradient.
ById<bool> reached_from(const Graph& graph, const ValueIds& sources) {
  ById<bool> reached(graph.values.size(), false);
  for (const ValueId id : sources) reached[id] = true;
  for (const Node& node : graph.nodes) {
    if (node.op == OpCode::stop_gradient) continue;
    const bool any = std::any_of(node.operands.begin(), node.operands.end(),
                                 [&](ValueId id) { return id != kNoValue && reached[id]; });
    for (const ValueId id : node.results) {
      if (any && id != kNoValue && is_float(graph.type(id).dtype)) reached[id] = true;
    }
  }
  return reached;
}

class Differentiator {
 public:
  Differentiator(const Graph& graph, const AutodiffOptions& options)
      : rewriter_(graph), builder_(rewriter_.builder()), options_(options) {}

  Graph run() {
    const Graph& from = rewriter_.from();
    for (const Node& node : from.nodes) rewriter_.copy(node);
    for (const GraphInput& input : from.inputs) {
      if (wanted(input)) sources_.push_back(input);
    }
    const GraphOutput* loss = from.find_output(options_.loss);
    if (loss == nullptr) {
      throw Error(ErrorCode::invalid_argument, "[autodiff] graph {} has no output '{}'", from.name,
                  options_.loss);
    }
    const TensorType& type = from.type(loss->value);
    if (!type.shape.empty() || !is_float(type.dtype)) {
      throw Error(ErrorCode::invalid_argument, "[autodiff] '{}' must be a real scalar, got {}",
                  options_.loss, to_string(type));
    }
    for (const GraphInput& source : sources_) {
      const std::string name = gradient_name(source.name);
      if (from.find_output(name) == nullptr) continue;
      throw Error(ErrorCode::invalid_argument,
                  "[autodiff] expected a graph without gradients, got one with output '{}'", name);
    }
    backward(rewriter_.map(loss->value));
    for (const GraphInput& source : sources_) {
      const ValueId parameter = rewriter_.map(source.value);
      ValueId gradient = gradient_of(parameter);
      if (gradient == kNoValue) gradient = builder_.fill_like(parameter, 0);
      gradients_out_.emplace_back(gradient_name(source.name), gradient);
    }
    Graph result = rewriter_.finish();
    for (const auto& [name, id] : gradients_out_)
      result.outputs.push_back({.name = name, .value = id, .updates = kNoValue});
    return result;
  }

 private:
  bool wanted(const GraphInput& input) const {
    if (!is_float(rewriter_.from().type(input.value).dtype)) return false;
    if (options_.with_respect_to.empty()) return input.kind == InputKind::parameter;
    return std::find(options_.with_respect_to.begin(), options_.with_respect_to.end(),
                     input.name) != options_.with_respect_to.end();
  }
  ValueId gradient_of(ValueId id) const {
    return static_cast<size_t>(id) < gradients_.size() ? gradients_[id] : kNoValue;
  }
  void contribute(ValueId id, ValueId gradient) {
    ValueId& total = gradients_[id];
    total = total == kNoValue ? gradient : builder_.add(total, gradient);
  }

  void backward(ValueId loss) {
    Graph& graph = builder_.graph();
    ValueIds sources;
    for (const GraphInput& source : sources_) sources.push_back(rewriter_.map(source.value));
    const ById<bool> reached = reached_from(graph, sources);
    builder_.tag = Tag{.layer = -1, .role = Role::backward, .origin = "loss"};
    const size_t n_forward = graph.nodes.size();
    const ValueId seed =
        options_.loss_scale ? loss_scale(builder_, options_.loss_scale) : builder_.fill({}, 1.0);
    gradients_.assign(graph.values.size(), kNoValue);
    gradients_[loss] = seed;
    for (size_t n = n_forward; n-- > 0;) {
      const Node node = graph.nodes[n];  // a copy: vjp appends to graph.nodes
      ValueIds dresults;
      bool any = false;
      for (const ValueId id : node.results) {
        dresults.push_back(gradient_of(id));
        any = any || (dresults.back() != kNoValue && reached[id]);
      }
      if (any) differentiate(node, dresults, reached);
    }
  }

  void differentiate(const Node& node, const ValueIds& dresults, const ById<bool>& reached) {
    const OpDef& def = op_def(node.op);
    if (def.vjp == nullptr)
      throw Error(ErrorCode::invalid_argument, "[autodiff] {} has no gradient", def.name);
    builder_.tag = node.tag;
    builder_.tag.role = Role::backward;
    const ValueIds doperands =
        def.vjp(builder_, {.node = node, .dresults = dresults, .wanted = &reached});
    CHECK(doperands.size() == node.operands.size());
    for (size_t i = 0; i < doperands.size(); ++i) {
      const ValueId operand = node.operands[i];
      if (doperands[i] == kNoValue || operand == kNoValue || !reached[operand]) continue;
      CHECK(builder_.shape(doperands[i]) == builder_.shape(operand));
      contribute(operand, doperands[i]);
    }
  }

  Rewriter rewriter_;
  Builder& builder_;
  const AutodiffOptions& options_;
  std::vector<GraphInput> sources_;
  ById<ValueId> gradients_;  // by value of the new graph's forward part
  std::vector<std::pair<std::string, ValueId>> gradients_out_;
};

}  // namespace

Graph autodiff(const Graph& graph, const AutodiffOptions& options) {
  return Differentiator(graph, options).run();
}

}  // namespace octet
