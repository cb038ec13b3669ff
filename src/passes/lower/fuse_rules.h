// What a fuse rule is, and what it sees of the graph. One file per rule family in this folder.
// A rule is a pattern that one op takes the place of; what makes more than one op is a pass of its
// own (fuse_amax.h, chunk_head.h).
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/lower/fuse.h"

namespace octet {

// The graph with its uses, and what the target asks for.
class Matcher {
 public:
  explicit Matcher(const Graph& graph, const FuseOptions& options = {},
                   FuseReport* report = nullptr);
  const FuseOptions& options() const { return options_; }
  // Notes that the rule has found its first node, but not the rest.
  void near_miss(std::string_view rule, const Node& node, std::string_view why) const;
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

 private:
  const Graph& graph_;
  const FuseOptions options_;
  FuseReport* report_;
  std::vector<std::vector<NodeId>> uses_;
  std::set<ValueId> graph_outputs_;
};

// The fused op that stands in the place of `last`; result i replaces the old value replaces[i],
// whose type it has (kNoValue: a new one, in f32).
struct Match {
  NodeId last = kNoNode;
  OpCode op = OpCode::neg;
  Attrs attrs;
  ValueIds operands;
  ValueIds replaces;
  Tag tag = {};
  std::vector<NodeId> consumed = {};  // nodes that the fused op stands for, besides `last`
};

struct FuseRule {
  std::string_view name;
  std::optional<OpCode> op;  // of the nodes that it is asked for; nothing: of all
  std::optional<Match> (*match)(const Matcher& m, const Node& node);
};

// Replaces what the rule finds. A match is a near miss where it has a node of an earlier one, where
// anybody else reads what it takes away, or where it would read a value before it is made: so no
// rule can lose a node.
Graph rewrite_matches(Graph graph, const FuseRule& rule, const FuseOptions& options,
                      FuseReport* report);

// In the order in which they run.
std::span<const FuseRule> fuse_rules();

// The quant_scale or delayed_scale that makes the scale of a quantize or quantize_both, for its
// target; nullptr where it comes from elsewhere.
const Node* scale_maker(const Matcher& m, const Node& quantize);

std::optional<Match> match_quantized_operands(const Matcher& m, const Node& node);
std::optional<Match> match_add_quantize(const Matcher& m, const Node& node);
// fuse_quantize.cpp
std::optional<Match> match_one_layout(const Matcher& m, const Node& node);
std::optional<Match> match_layer_quantize(const Matcher& m, const Node& node);
std::optional<Match> match_known_statistics(const Matcher& m, const Node& node);
// For targets that keep an activation's operands in groups as they read them.
std::optional<Match> match_kept_operands(const Matcher& m, const Node& node);
// fuse_gradients.cpp; for targets that quantize gradients where they are made
std::optional<Match> match_gradient_quantize(const Matcher& m, const Node& node);
// fuse_amax_quantize.cpp; runs behind fuse_amax
std::optional<Match> match_amax_quantize(const Matcher& m, const Node& node);
// fuse_moments.cpp
std::optional<Match> match_scaled_moment(const Matcher& m, const Node& node);
// fuse_rules.cpp
std::optional<Match> match_quantized_weight(const Matcher& m, const Node& node);
// Of products of E4M3 codes with a constant scale.
std::optional<Match> match_gemm_quantize(const Matcher& m, const Node& node);
std::optional<Match> match_gemm_bias(const Matcher& m, const Node& node);
std::optional<Match> match_residual(const Matcher& m, const Node& node);
std::optional<Match> match_gemm_accumulate(const Matcher& m, const Node& node);
std::optional<Match> match_norm_grad_accumulate(const Matcher& m, const Node& node);

}  // namespace octet
