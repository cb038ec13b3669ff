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
#include <vector>

#include "ir/builder.h"
#include "optim/optimizer.h"

namespace octet {

struct RuleState {
  StateUse use = StateUse::none;
  TensorType type = {};        // of the whole weight's state
  std::string_view site = {};  // of states that belong to a site: behind the parameter's name
};

// Of a weight's state in this format.
TensorType state_type(const TensorType& weight, Dtype dtype, const OptimPolicy& policy);
// The state, and behind it the scale where it is FP16: the fixed_scale of this site.
void add_state(std::vector<RuleState>& states, StateUse use, const TensorType& type,
               std::string_view scale);
inline constexpr std::string_view kScaleOfMaster = ".w";
// What is kept beside the weight, if anything is.
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
  void (*build)(UpdateBuilder& u) = nullptr;
};
const UpdateRule& update_rule(UpdateKind kind);
std::span<const UpdateRule* const> update_rules();
// The rule that takes this scalar; nullptr where none does.
const UpdateRule* rule_of_scalar(std::string_view name);

// Scalars that many updates read, one node for each value.
class Constants {
 public:
  explicit Constants(Builder& builder) : builder_(builder) {}
  ValueId of(double value) {
    const auto [at, is_new] = known_.try_emplace(value, kNoValue);
    if (is_new) at->second = builder_.fill({}, value);
    return at->second;
  }

 private:
  Builder& builder_;
  std::map<double, ValueId> known_;
};

// One `update` node, as its rule sees it.
class UpdateBuilder {
 public:
  // `operands`: the node's, as they are in the builder's graph.
  UpdateBuilder(Builder& builder, Constants& constants, const Node& update, ValueIds operands,
                const PolicyBySize& policy);

  Builder& b() { return builder_; }
  const OptimPolicy& policy() const { return policy_; }  // for a tensor of this size
  const UpdateAttrs& attrs() const { return attrs_; }
  const std::string& parameter() const { return parameter_; }
  // Keys random words: of the weight ("w"), the first moment or momentum ("m"), the second ("v").
  int64_t stream(std::string_view of) const;
  int64_t first() const;  // of the weight's elements, that this rank's shard begins with
  ValueId constant(double value) { return constants_.of(value); }

  ValueId weight() const { return operands_[Update::w]; }
  ValueId gradient() const { return operands_[Update::g]; }  // of the scaled loss, not clipped
  ValueId grad_scale() const { return operands_[Update::grad_scale]; }
  ValueId skipped() const { return operands_[Update::found_nonfinite]; }
  ValueId attempt() const { return operands_[Update::attempt]; }
  ValueId scalar(std::string_view name) const;
  // kNoValue where the rule keeps no such state of this weight.
  ValueId state(StateUse use, std::string_view site = {}) const;
  ValueId lr();
  // All ranks' shards of x as the whole matrix, and this rank's shard of such a one.
  ValueId whole(ValueId x);
  ValueId own(ValueId x);
  // The largest of the ranks' x, where they have shards.
  ValueId max_over_ranks(ValueId x);

  void set_weight(ValueId next) { results_[Update::next_w] = next; }
  void set(StateUse use, ValueId next, std::string_view site = {});
  const ValueIds& results() const { return results_; }

 private:
  size_t place(StateUse use, std::string_view site) const;  // among the states; their number: none

  Builder& builder_;
  Constants& constants_;
  const UpdateAttrs& attrs_;
  const std::string& parameter_;
  ValueIds operands_, results_;
  const OptimPolicy& policy_;
  const UpdateRule& rule_;
  std::vector<RuleState> states_;
};

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

extern const UpdateRule kAdamwRule, kSgdRule, kMuonRule;

}  // namespace octet
