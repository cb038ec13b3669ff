// Update rules by table: the states that a rule keeps of a weight, the scalars that it takes of the
// host, and how it makes the next weight and states. An optimizer is one UpdateRule in one file and
// a line of the list (rule.cpp).
//
// build_update (optim/optimizer.h) appends one `update` node a parameter; passes cut its operands
// among ranks by the table of states (ir/states.h) and know no rule. expand_updates then puts the
// rule's nodes in its place.
#pragma once

#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "ir/builder.h"
#include "optim/optimizer.h"

namespace octet {

struct RuleState {
  StateUse use = StateUse::none;
  TensorType type = {};        // of the whole weight's state
  std::string_view site = {};  // of states that belong to a site: behind the parameter's name
};

// Type of a weight's state in this format.
TensorType state_type(const TensorType& weight, Dtype dtype, const OptimPolicy& policy);
// The state, and behind it the scale where it is FP16: the fixed_scale of this site.
void add_state(std::vector<RuleState>& states, StateUse use, const TensorType& type,
               std::string_view scale);
inline constexpr std::string_view kScaleOfMaster = ".w";
// The master that is kept beside the weight, if one is.
void add_master(std::vector<RuleState>& states, const TensorType& weight,
                const OptimPolicy& policy);

class UpdateBuilder;

struct UpdateRule {
  UpdateKind kind = UpdateKind::adamw;
  // Step scalars, f32[], and the value of one for the t-th applied update, counted from 1.
  std::span<const std::string_view> scalars = {};
  float (*scalar)(std::string_view name, const OptimPolicy& policy, int64_t t) = nullptr;
  // In the order in which they are declared; `weight` is the whole one.
  std::vector<RuleState> (*states)(const TensorType& weight, const OptimPolicy& policy) = nullptr;
  // One of the two. together: of weights of one shape, whose gradients are known at once.
  void (*build)(UpdateBuilder& u) = nullptr;
  void (*build_together)(std::span<UpdateBuilder> all) = nullptr;
};
const UpdateRule& update_rule(UpdateKind kind);
std::span<const UpdateRule* const> update_rules();
// The rule that takes this scalar; nullptr where none does.
const UpdateRule* rule_of_scalar(std::string_view name);

// Scalars that many updates read, one node for each value, and for each op of two of them.
class Scalars {
 public:
  explicit Scalars(Builder& builder) : builder_(builder) {}
  ValueId constant(double value) {
    const auto [at, is_new] = constants_.try_emplace(value, kNoValue);
    if (is_new) at->second = builder_.fill({}, value);
    return at->second;
  }
  ValueId of(OpCode op, ValueId a, ValueId b) {
    const auto [at, is_new] = known_.try_emplace({op, a, b}, kNoValue);
    if (is_new) at->second = builder_.emit1(op, NoAttrs{}, {a, b});
    return at->second;
  }
  bool is_one(ValueId id) const {
    const auto one = constants_.find(1);
    return one != constants_.end() && one->second == id;
  }

 private:
  Builder& builder_;
  std::map<double, ValueId> constants_;
  std::map<std::tuple<OpCode, ValueId, ValueId>, ValueId> known_;
};

// A tensor times a number f32[].
struct Term {
  ValueId value = kNoValue, factor = kNoValue;
};

// One `update` node, as its rule sees it.
class UpdateBuilder {
 public:
  // `operands`: the node's, as they are in the builder's graph.
  UpdateBuilder(Builder& builder, Scalars& scalars, const Node& update, ValueIds operands,
                const PolicyBySize& policy);

  // Nodes that are appended from here on are of this parameter.
  void begin() { builder_.tag = node_.tag; }
  const Node& node() const { return node_; }

  Builder& b() { return builder_; }
  const OptimPolicy& policy() const { return policy_; }  // for a tensor of this size
  const UpdateAttrs& attrs() const { return attrs_; }
  const std::string& parameter() const { return parameter_; }
  // Keys random words: of the weight ("w"), the first moment or momentum ("m"), the second ("v").
  int64_t stream(std::string_view of) const;
  int64_t first() const;  // of the weight's elements, that this rank's shard begins with
  ValueId constant(double value) { return scalars_.constant(value); }
  ValueId product(ValueId a, ValueId b);
  ValueId difference(ValueId a, ValueId b) { return scalars_.of(OpCode::sub, a, b); }
  ValueId quotient(ValueId a, ValueId b) { return scalars_.of(OpCode::div, a, b); }
  ValueId sum(const Term& a, const Term& b, Dtype dtype = Dtype::f32);

  ValueId weight() const { return operands_[Update::w]; }
  ValueId gradient() const { return operands_[Update::g]; }  // of the scaled loss, not clipped
  ValueId grad_scale() const { return operands_[Update::grad_scale]; }
  ValueId skipped() const { return operands_[Update::found_nonfinite]; }
  ValueId attempt() const { return operands_[Update::attempt]; }
  ValueId scalar(std::string_view name) const;
  // kNoValue where the rule keeps no such state of this weight.
  ValueId state(StateUse use, std::string_view site = {}) const;
  ValueId lr();
  // |x|, f32[], of the whole tensor of which x is this rank's shard.
  ValueId norm(ValueId x);
  // The largest of the ranks' x, where they have shards.
  ValueId max_over_ranks(ValueId x);

  void set_weight(ValueId next) { results_[Update::next_w] = next; }
  void set(StateUse use, ValueId next, std::string_view site = {});
  const ValueIds& results() const { return results_; }

 private:
  size_t place(StateUse use, std::string_view site) const;  // among the states; their number: none

  Builder& builder_;
  Scalars& scalars_;
  const Node& node_;
  const UpdateAttrs& attrs_;
  const std::string& parameter_;
  ValueIds operands_, results_;
  const OptimPolicy& policy_;
  const UpdateRule& rule_;
  std::vector<RuleState> states_;
};

// 1 - beta^t of the two moments of Adam, "adam_c1" and "adam_c2", and what they are.
inline constexpr std::string_view kAdamScalars[] = {"adam_c1", "adam_c2"};
float adam_correction(std::string_view name, const OptimPolicy& policy, int64_t t);
std::vector<RuleState> adam_states(const TensorType& weight, const OptimPolicy& policy);

// A value in FP16 with a scale f32[], as f32: the scale that the state of this site holds, or
// `first` where it holds none yet.
struct HalfState {
  ValueId wide = kNoValue, scale = kNoValue;
};
HalfState load_half(UpdateBuilder& u, ValueId value, std::string_view site, double first);
// The first scale of a moment, from the gradient that is predicted; power 2: of its square.
double first_scale(const UpdateBuilder& u, int power);
// The scale that brings the largest magnitude of `measured` to 2^14, within a factor of sqrt(2),
// and the site's next state; a step that is skipped keeps the old one.
ValueId next_scale(UpdateBuilder& u, ValueId measured, ValueId old, std::string_view site);
// Stored stochastically with the scale. site: keys the random words.
ValueId store_half(UpdateBuilder& u, ValueId next, ValueId scale, std::string_view site,
                   bool keeps_positive = false);

extern const UpdateRule kAdamwRule, kSgdRule, kMuonRule, kLambRule;

}  // namespace octet
