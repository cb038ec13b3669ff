#include "compile/update_rules.h"

#include <map>
#include <string>
#include <vector>

#include "passes/freeze.h"
#include "passes/precision/policy.h"

namespace octet {
namespace {

// The path of a parameter's module: that of an adapter is the one that it adapts.
std::string module_of(const std::string& parameter) {
  std::string module = parameter.substr(0, parameter.rfind('.'));
  for (const std::string_view adapter : {".lora_A", ".lora_B"}) {
    if (module.ends_with(adapter)) module.erase(module.size() - adapter.size());
  }
  return module;
}

// The weight that a linear reads, trained or frozen; nullptr of other nodes.
const GraphInput* weight_of(const Graph& graph, const Node& node) {
  if (linear_role(node) != GemmRole::forward) return nullptr;
  const GraphInput* weight = graph.input_of(node.in(Gemm::b));
  const bool is_weight = weight != nullptr && (weight->kind == InputKind::parameter ||
                                               weight->kind == InputKind::constant);
  return is_weight ? weight : nullptr;
}

class ParameterNames {
 public:
  explicit ParameterNames(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) {
      const GraphInput* weight = is_layer_gemm(node) ? weight_of(graph, node) : nullptr;
      if (weight != nullptr) linears_.try_emplace(module_of(weight->name), linear_name(node));
    }
  }

  bool are_meant(const OptimRule& rule, const GraphInput& parameter) const {
    if (matches_pattern(rule.pattern, parameter.name)) return true;
    if (rule.kind == UpdateKind::muon && graph_.type(parameter.value).shape.size() != 2)
      return false;
    const std::string module = module_of(parameter.name);
    const auto linear = linears_.find(module);
    return matches_pattern(rule.pattern, module) ||
           matches_pattern(rule.pattern, module.substr(module.rfind('.') + 1)) ||
           (linear != linears_.end() && matches_pattern(rule.pattern, linear->second));
  }

 private:
  const Graph& graph_;
  std::map<std::string, std::string> linears_;  // by module, their short names
};

std::vector<OptimRule> named_rules(const std::vector<OptimRule>& rules, const Graph& graph) {
  if (rules.empty()) return {};
  const ParameterNames names(graph);
  std::vector<OptimRule> named;
  for (const OptimRule& rule : rules) {
    const size_t n_before = named.size();
    for (const GraphInput& input : graph.inputs) {
      if (input.kind == InputKind::parameter && names.are_meant(rule, input))
        named.push_back({input.name, rule.kind, rule.lr});
    }
    if (named.size() == n_before) refuse_pattern("optim.rules", rule.pattern, graph);
  }
  return named;
}

}  // namespace

OptimPolicy for_parameters(OptimPolicy policy, const Graph& logical) {
  policy.rules = named_rules(policy.rules, logical);
  for (const Node& node : logical.nodes) {
    const GraphInput* weight = weight_of(logical, node);
    if (weight != nullptr && !std::get<GemmAttrs>(node.attrs).trans_b)
      policy.in_out.insert(weight->name);
  }
  return policy;
}

}  // namespace octet
