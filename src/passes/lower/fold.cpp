#include "passes/lower/fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "ir/print.h"
#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/simplify.h"

namespace octet {

Matcher::Matcher(const Graph& graph, const TakesForm& takes, FuseReport* report)
    : graph_(graph), takes_(takes), report_(report), uses_(uses(graph)) {
  for (const GraphOutput& output : graph.outputs) graph_outputs_.insert(output.value);
}

bool Matcher::takes(const Form& form) const {
  return takes_ && takes_(graph_, {form.op, form.attrs, trimmed(form.operands),
                                   trimmed(form.results), form.tag});
}

void Matcher::near_miss(std::string_view form, NodeId node, std::string_view why) const {
  if (report_ != nullptr)
    report_->near_misses.push_back(
        fmt::format("{}: {}: {}", form, print(graph_, graph_.node(node)), why));
}

Form Matcher::form_of(const Node& node) const {
  return {id(node), node.op, node.attrs, all_operands(node), node.results, node.tag};
}

std::vector<const Node*> Matcher::readers(ValueId id) const {
  std::vector<const Node*> result;
  for (const NodeId n : uses_[id]) result.push_back(&graph_.node(n));
  return result;
}

const Node* Matcher::reader(ValueId id, OpCode op) const {
  for (const Node* node : readers(id)) {
    if (node->op == op) return node;
  }
  return nullptr;
}

bool Matcher::read_before(ValueId id, const Node& node) const {
  const auto& readers = uses_[id];
  return std::any_of(readers.begin(), readers.end(),
                     [&](NodeId reader) { return reader < graph_.id(node); });
}

namespace {

// The forms that a graph may take, so that no node and no value is lost.
class FormSet {
 public:
  explicit FormSet(const Matcher& m)
      : m_(m), by_last_(m.graph().nodes.size()), taken_(m.graph().nodes.size(), false) {}

  // Why it cannot be beside those that are there.
  std::optional<std::string> illegal(const Form& form) const {
    const std::vector<NodeId> nodes = nodes_of(form);
    for (const NodeId n : nodes) {
      if (taken_[n]) return fmt::format("{} belongs to another form", name(n));
    }
    for (const ValueId id : form.operands) {
      if (id == kNoValue) continue;
      const auto made = made_at_.find(id);
      const NodeId producer = m_.graph().value(id).producer;
      if (std::max(producer, made == made_at_.end() ? kNoNode : made->second) >= form.last)
        return fmt::format("%{} is made too late", id);
    }
    for (const NodeId n : nodes) {
      for (const ValueId id : node(n).results) {
        if (id == kNoValue) continue;
        if (auto why = illegal_result(form, nodes, id)) return why;
      }
    }
    return std::nullopt;
  }

  void add(Form form) {
    for (const NodeId n : nodes_of(form)) {
      taken_[n] = true;
      for (const ValueId id : node(n).results) {
        if (id != kNoValue) made_at_[id] = replaces(form, id) ? form.last : kGone;
      }
    }
    for (const ValueId id : form.operands) {
      if (id == kNoValue) continue;
      NodeId& first = read_at_.try_emplace(id, form.last).first->second;
      first = std::min(first, form.last);
    }
    by_last_[form.last] = std::move(form);
  }

  const std::optional<Form>& form_at(NodeId last) const { return by_last_[last]; }
  bool is_taken(NodeId n) const { return taken_[n]; }
  bool empty() const { return made_at_.empty(); }

 private:
  static constexpr NodeId kGone = std::numeric_limits<NodeId>::max();
  const Node& node(NodeId n) const { return m_.graph().node(n); }
  std::string_view name(NodeId n) const { return op_def(node(n).op).name; }
  static std::vector<NodeId> nodes_of(const Form& form) {
    std::vector<NodeId> nodes = form.consumed;
    nodes.push_back(form.last);
    return nodes;
  }
  static bool replaces(const Form& form, ValueId id) {
    return std::ranges::find(form.results, id) != form.results.end();
  }

  // A replaced result may be read behind the form, another by the form's own nodes alone.
  std::optional<std::string> illegal_result(const Form& form, const std::vector<NodeId>& nodes,
                                            ValueId id) const {
    const bool is_replaced = replaces(form, id);
    for (const Node* reader : m_.readers(id)) {
      const NodeId n = m_.id(*reader);
      const bool is_own = std::ranges::find(nodes, n) != nodes.end();
      if (is_own || (is_replaced && n > form.last)) continue;
      return fmt::format("%{} is read by {} {}", id, name(n), is_replaced ? "before" : "too");
    }
    if (!is_replaced && m_.is_graph_output(id)) return fmt::format("%{} is handed out", id);
    const auto read = read_at_.find(id);
    if (read != read_at_.end() && (!is_replaced || read->second <= form.last))
      return fmt::format("%{} is read by another form", id);
    return std::nullopt;
  }

  const Matcher& m_;
  ById<std::optional<Form>> by_last_;
  ById<bool> taken_;
  std::map<ValueId, NodeId> made_at_;  // results of nodes in forms: where the form makes them
  std::map<ValueId, NodeId> read_at_;  // operands of forms: the first that reads them
};

FormSet choose_forms(const Matcher& m, std::span<const Fold> folds) {
  FormSet forms(m);
  for (const Node& node : m.graph().nodes) {
    if (forms.is_taken(m.id(node))) continue;
    Form form = m.form_of(node);
    bool any = false;
    for (const Fold& fold : folds) {
      auto folded = fold.apply(m, form);
      if (!folded) continue;
      if (const auto why = forms.illegal(*folded)) {
        m.near_miss(fold.name, m.id(node), *why);
        continue;
      }
      form = std::move(*folded);
      any = true;
    }
    if (any) forms.add(std::move(form));
  }
  return forms;
}

}  // namespace

Graph apply_folds(Graph graph, std::span<const Fold> folds, const TakesForm& takes,
                  FuseReport* report) {
  const Matcher matcher(graph, takes, report);
  const FormSet forms = choose_forms(matcher, folds);
  if (forms.empty()) return graph;
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    const auto& form = forms.form_at(matcher.id(node));
    if (!form) {
      if (!forms.is_taken(matcher.id(node))) rewriter.copy(node);
      continue;
    }
    rewriter.builder().tag = form->tag.origin.empty() ? node.tag : form->tag;
    ResultTypes types = result_types(graph, form->results);
    types.resize(op_def(form->op).results.size(), Dtype::f32);
    const auto results =
        rewriter.builder().emit_typed(form->op, form->attrs, rewriter.map(form->operands), types);
    for (size_t i = 0; i < form->results.size(); ++i) {
      if (form->results[i] != kNoValue) rewriter.set(form->results[i], results.at(i));
    }
  }
  return remove_dead(rewriter.finish());
}

}  // namespace octet
