#include "ptq/linears.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "infer/fake_quantize_inputs.h"
#include "ir/op_def.h"
#include "passes/precision/policy.h"

namespace octet {
namespace {

constexpr std::string_view kHead = "lm_head";

bool is_tokens(const GraphInput& input) {
  return input.kind == InputKind::batch && input.name == "tokens";
}

class SiteFinder {
 public:
  SiteFinder(const Graph& graph, const PtqSearch& search)
      : graph_(graph),
        search_(search),
        uses_(uses(graph)),
        is_of_pictures_(picture_values(graph)),
        has_tokens_(std::ranges::any_of(graph.inputs, &is_tokens)) {}

  std::vector<PtqSite> run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].op == OpCode::gemm) last_ = static_cast<NodeId>(n);
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.op == OpCode::gemm) add_linear(node, static_cast<NodeId>(n));
      if (search_.residual && is_residual_sum(node)) add_sum(node, static_cast<NodeId>(n));
    }
    check_patterns();
    const auto has_linears = [](const PtqSite& site) { return !site.linears.empty(); };
    if (std::ranges::none_of(sites_, has_linears)) {
      throw Error(ErrorCode::invalid_argument,
                  "[ptq] --keep: expected linears that are left, got "
                  "none");
    }
    for (const auto& [key, i] : site_of_) {
      find_norm(sites_[i]);
      sites_[i].kept = kept_[key];
    }
    std::ranges::sort(sites_, {}, &PtqSite::first);
    return std::move(sites_);
  }

 private:
  // The parameter that is read, and by this node alone.
  std::string own_parameter(ValueId value) const {
    const GraphInput* input = value == kNoValue ? nullptr : graph_.input_of(value);
    if (input == nullptr || input->kind != InputKind::parameter) return "";
    return uses_[static_cast<size_t>(value)].size() == 1 ? input->name : "";
  }

  // A linear in no layer. A decoder has one, its head; an encoder may have several, named by their
  // modules. Of a model that sees pictures those before the tower's layers and behind them.
  std::string outer_name(const PtqLinear& linear, ValueId x) const {
    if (linear.weight.empty() || !search_.prefix) return std::string(kHead);
    const std::string module = module_of(linear);
    if (has_tokens_ && is_of_pictures_[static_cast<size_t>(x)]) {
      const char* const part = has_layers_ ? "projector." : "vision.";
      return part + module.substr(module.rfind('.') + 1);
    }
    return module.starts_with(*search_.prefix) ? module.substr(search_.prefix->size()) : module;
  }

  static std::string module_of(const PtqLinear& linear) {
    return linear.weight.substr(0, linear.weight.rfind('.'));
  }

  bool is_kept(const PtqLinear& linear, bool is_head) {
    bool kept = false;
    for (const std::string& pattern : search_.keep) {
      const bool matches = matches_pattern(pattern, linear.name) ||
                           matches_pattern(pattern, module_of(linear)) ||
                           (is_head && matches_pattern(pattern, kHead));
      if (matches) matched_.insert(pattern);
      kept = kept || matches;
    }
    return kept;
  }

  void add_linear(const Node& node, NodeId id) {
    const auto& attrs = std::get<GemmAttrs>(node.attrs);
    PtqLinear linear{.weight = own_parameter(node.in(Gemm::b)), .node = id};
    const bool is_outer = node.tag.layer < 0;
    const ValueId x = node.in(Gemm::a);
    has_layers_ = has_layers_ || !is_outer;
    linear.name = is_outer ? outer_name(linear, x) : linear_name(node);
    names_.insert(linear.name);
    if (linear.weight.empty()) matched_.insert(std::string(kHead));  // a tied head
    if (linear.weight.empty() || attrs.role != GemmRole::forward) return;
    if (is_kept(linear, is_outer && id == last_)) {
      if (!is_outer) kept_[{node.tag.layer, x}].push_back(linear.name);
      return;
    }
    const Shape& shape = graph_.type(node.in(Gemm::b)).shape;
    linear.is_in_out = !attrs.trans_b;
    linear.n_in = shape[linear.is_in_out ? 0 : 1];
    linear.n_out = shape[linear.is_in_out ? 1 : 0];
    // Layers that read one value, the last of an encoder, are quantized one after the other.
    const auto [site, is_new] = site_of_.try_emplace({node.tag.layer, x}, sites_.size());
    if (is_new) sites_.push_back({.first = id, .reads = {x}});
    sites_[site->second].linears.push_back(std::move(linear));
  }

  void add_sum(const Node& node, NodeId id) {
    sites_.push_back({.first = id,
                      .reads = {node.in(Binary::a), node.in(Binary::b)},
                      .layer = layer_name(node.tag),
                      .sum = n_sums_[node.tag.layer]++});
  }

  void find_norm(PtqSite& site) const {
    const ValueId x = site.reads.front();
    const Node* producer = graph_.producer(x);
    if (producer == nullptr || uses_[static_cast<size_t>(x)].size() != site.linears.size()) return;
    const Node& node = *producer;
    if (!is_norm(node.op)) return;
    const NormSlots& at = op_def(node.op).norm;
    site.norm.weight = own_parameter(node.in(at.weight));
    site.norm.bias = own_parameter(node.in(at.bias));
  }

  void check_patterns() const {
    for (const std::string& pattern : search_.keep) {
      if (pattern == kHead || matched_.contains(pattern)) continue;
      throw Error(ErrorCode::invalid_argument,
                  "[ptq] --keep: expected a pattern that matches a linear, such as {}, got '{}'",
                  *names_.begin(), pattern);
    }
  }

  const Graph& graph_;
  const PtqSearch& search_;
  std::vector<std::vector<NodeId>> uses_;
  std::vector<PtqSite> sites_;
  std::vector<bool> is_of_pictures_;
  bool has_tokens_ = false, has_layers_ = false;  // layers: before the node at hand
  NodeId last_ = kNoNode;                         // GEMM
  std::map<int, int> n_sums_;
  // By layer and what they read.
  std::map<std::pair<int, ValueId>, size_t> site_of_;
  std::map<std::pair<int, ValueId>, std::vector<std::string>> kept_;
  std::set<std::string> matched_, names_;
};

}  // namespace

std::vector<bool> picture_values(const Graph& graph) {
  std::vector<bool> has_pictures(graph.values.size()), has_tokens = has_pictures;
  for (const GraphInput& input : graph.inputs) {
    const auto value = static_cast<size_t>(input.value);
    has_tokens[value] = is_tokens(input);
    has_pictures[value] = input.kind == InputKind::batch && input.name == "pictures";
  }
  const auto reach = [&](std::vector<bool>& flags) {
    for (const Node& node : graph.nodes) {
      const bool is_reached = std::ranges::any_of(node.operands, [&](ValueId id) {
        return id != kNoValue && flags[static_cast<size_t>(id)];
      });
      for (const ValueId id : node.results)
        if (id != kNoValue && is_reached) flags[static_cast<size_t>(id)] = true;
    }
  };
  reach(has_tokens);
  reach(has_pictures);
  for (size_t value = 0; value < has_pictures.size(); ++value)
    has_pictures[value] = has_pictures[value] && !has_tokens[value];
  return has_pictures;
}

std::string site_name(const PtqSite& site) {
  if (site.linears.empty()) return fmt::format("{}.residual.{}", site.layer, site.sum);
  std::string name = site.linears.front().name;
  for (size_t i = 1; i < site.linears.size(); ++i) {
    const std::string& other = site.linears[i].name;
    name += ", " + other.substr(other.rfind('.') + 1);
  }
  return name;
}

std::vector<PtqSite> find_sites(const Graph& graph, const PtqSearch& search) {
  return SiteFinder(graph, search).run();
}

}  // namespace octet
