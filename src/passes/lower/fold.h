// A fold, and what it sees of the graph. What makes more than one op is a pass of its own
// (fuse_amax.h, chunk_head.h).
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "passes/lower/fuse.h"

namespace octet {

// A node with what it has taken up. It stands in the place of `last`; result i replaces the old
// value results[i], whose type it has (kNoValue: a new one, in f32).
struct Form {
  NodeId last = kNoNode;
  OpCode op = OpCode::neg;
  Attrs attrs;
  ValueIds operands, results;  // with room for every slot of the operands
  Tag tag = {};
  std::vector<NodeId> consumed = {};  // nodes that it stands for, besides `last`

  void stand_at(NodeId node) { consumed.push_back(std::exchange(last, node)); }
};

// The graph with its uses, and what the target takes.
class Matcher {
 public:
  explicit Matcher(const Graph& graph, const TakesForm& takes = {}, FuseReport* report = nullptr);
  // True if the target takes the form, one that not all targets have.
  bool takes(const Form& form) const;
  // Notes that what is at the node might be `form`, but for the reason that is given.
  void near_miss(std::string_view form, NodeId node, std::string_view why) const;
  const Graph& graph() const { return graph_; }
  std::vector<const Node*> readers(ValueId id) const;
  const Node* reader(ValueId id, OpCode op) const;  // the first with this op, or nullptr
  bool is_graph_output(ValueId id) const { return graph_outputs_.count(id) > 0; }
  bool read_once(ValueId id) const { return readers(id).size() == 1 && !is_graph_output(id); }
  bool read_before(ValueId id, const Node& node) const;
  const TensorType& type(ValueId id) const { return graph_.type(id); }
  Dtype dtype(ValueId id) const { return graph_.type(id).dtype; }
  const Node* producer(ValueId id) const { return graph_.producer(id); }
  const Node* producer(ValueId id, OpCode op) const { return graph_.producer(id, op); }
  NodeId id(const Node& node) const { return graph_.id(node); }
  Form form_of(const Node& node) const;

 private:
  const Graph& graph_;
  const TakesForm takes_;
  FuseReport* report_;
  ById<std::vector<NodeId>> uses_;
  std::set<ValueId> graph_outputs_;
};

struct Fold {
  std::string_view name;
  // The form with one more thing taken up; nothing where that is not there.
  std::optional<Form> (*apply)(const Matcher& m, const Form& form);
};

// Every node takes up what it can, fold by fold. What a form takes away nobody else reads, no node
// is part of two forms, and nothing is read before it is made: a fold that would break that is left
// out, and is a near miss.
Graph apply_folds(Graph graph, std::span<const Fold> folds, const TakesForm& takes,
                  FuseReport* report);

// fold_operands.cpp
std::optional<Form> fold_load(const Matcher& m, const Form& form);
std::optional<Form> fold_addend(const Matcher& m, const Form& form);
std::optional<Form> fold_scaled_moment(const Matcher& m, const Form& form);
// fold_windows.cpp
std::optional<Form> fold_windows(const Matcher& m, const Form& form);
// fold_quantizers.cpp
std::optional<Form> fold_one_layout(const Matcher& m, const Form& form);
std::optional<Form> fold_groups(const Matcher& m, const Form& form);
std::optional<Form> fold_store(const Matcher& m, const Form& form);
std::optional<Form> fold_own_scale(const Matcher& m, const Form& form);
// fold_layers.cpp: of layers that have taken up their quantizer
std::optional<Form> fold_known_statistics(const Matcher& m, const Form& form);
std::optional<Form> fold_kept_operands(const Matcher& m, const Form& form);

}  // namespace octet
