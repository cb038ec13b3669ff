#include "optim/rules/rule.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "ir/sharding.h"

namespace octet {
namespace {

// In the order of UpdateKind.
const UpdateRule* const kRules[] = {&kAdamwRule, &kSgdRule, &kMuonRule, &kLambRule};

}  // namespace

TensorType state_type(const TensorType& weight, Dtype dtype, const OptimPolicy& policy) {
  TensorType type{.dtype = dtype, .shape = weight.shape};
  if (is_quantized(dtype)) {
    type.granularity = {.kind = Granularity::Kind::run, .size = policy.group, .scale = Dtype::u32};
  }
  return type;
}

void add_state(std::vector<RuleState>& states, StateUse use, const TensorType& type,
               std::string_view scale) {
  states.push_back({use, type});
  if (type.dtype == Dtype::fp16) states.push_back({StateUse::fixed_scale, {Dtype::f32, {}}, scale});
}

void add_master(std::vector<RuleState>& states, const TensorType& weight,
                const OptimPolicy& policy) {
  const TensorType type = master_type(weight, policy);
  if (type == absent_type()) return;
  const bool is_rest = type.dtype == Dtype::i16;
  add_state(states, is_rest ? StateUse::master_remainder : StateUse::master, type, kScaleOfMaster);
}

const UpdateRule& update_rule(UpdateKind kind) {
  const UpdateRule& rule = *kRules[static_cast<size_t>(kind)];
  CHECK(rule.kind == kind);
  return rule;
}

std::span<const UpdateRule* const> update_rules() {
  return kRules;
}

const UpdateRule* rule_of_scalar(std::string_view name) {
  for (const UpdateRule* rule : kRules) {
    if (std::ranges::find(rule->scalars, name) != rule->scalars.end()) return rule;
  }
  return nullptr;
}

UpdateBuilder::UpdateBuilder(Builder& builder, Scalars& scalars, const Node& update,
                             ValueIds operands, const PolicyBySize& policy)
    : builder_(builder),
      scalars_(scalars),
      node_(update),
      attrs_(std::get<UpdateAttrs>(update.attrs)),
      parameter_(update.tag.origin),
      operands_(std::move(operands)),
      results_(update.results.size(), kNoValue),
      policy_(policy.of(n_elems(attrs_.shape))),
      rule_(update_rule(attrs_.rule)) {
  const TensorType weight{.dtype = builder.type(operands_[Update::w]).dtype, .shape = attrs_.shape};
  states_ = rule_.states(weight, policy_);
  if (operands_.size() < Update::value) operands_.resize(Update::value, kNoValue);
  CHECK(operands_.size() == Update::value + rule_.scalars.size() + states_.size());
}

int64_t UpdateBuilder::stream(std::string_view of) const {
  return static_cast<int64_t>(name_hash(parameter_ + ":" + std::string(of)));
}

int64_t UpdateBuilder::first() const {
  return attrs_.rank * shard_elems(n_elems(attrs_.shape), attrs_.ranks);
}

ValueId UpdateBuilder::scalar(std::string_view name) const {
  const auto at = std::ranges::find(rule_.scalars, name);
  CHECK(at != rule_.scalars.end());
  return operands_[Update::value + static_cast<size_t>(at - rule_.scalars.begin())];
}

size_t UpdateBuilder::place(StateUse use, std::string_view site) const {
  const auto at = std::ranges::find_if(
      states_, [&](const RuleState& state) { return state.use == use && state.site == site; });
  return static_cast<size_t>(at - states_.begin());
}

ValueId UpdateBuilder::state(StateUse use, std::string_view site) const {
  const size_t at = place(use, site);
  const size_t first = Update::value + rule_.scalars.size();
  return at == states_.size() ? kNoValue : operands_[first + at];
}

void UpdateBuilder::set(StateUse use, ValueId next, std::string_view site) {
  const size_t at = place(use, site);
  CHECK(at < states_.size());
  results_[Update::next_state + at] = next;
}

ValueId UpdateBuilder::product(ValueId a, ValueId b) {
  if (scalars_.is_one(a)) return b;
  return scalars_.is_one(b) ? a : scalars_.of(OpCode::mul, a, b);
}

ValueId UpdateBuilder::sum(const Term& a, const Term& b, Dtype dtype) {
  return builder_.emit_typed(OpCode::axpby, NoAttrs{}, {a.value, b.value, a.factor, b.factor},
                             {dtype})[0];
}

ValueId UpdateBuilder::lr() {
  const ValueId lr = operands_[Update::lr];
  return attrs_.lr == 1 ? lr : product(lr, constant(attrs_.lr));
}

ValueId UpdateBuilder::norm(ValueId x) {
  const ValueIds operands = {constant(0), x};
  CollectiveAttrs attrs;
  attrs.ranks = attrs_.ranks;
  return builder_.emit(OpCode::sharded_norm, attrs, operands)[GlobalNorm::norm];
}

ValueId UpdateBuilder::max_over_ranks(ValueId x) {
  return attrs_.ranks == 1 ? x : builder_.max_over_ranks(attrs_.ranks, x);
}

// State that a rule stores in FP16 with one scale a tensor (ir/fixed_scale.h).
HalfState load_half(UpdateBuilder& u, ValueId value, std::string_view site, double first) {
  const ValueId kept = u.state(StateUse::fixed_scale, site);
  const ValueId is_set = u.b().less(u.constant(0), kept);
  const ValueId scale = u.b().select(is_set, kept, u.constant(first));
  const ValueIds wide = u.b().emit_typed(OpCode::rescale, NoAttrs{}, {value, scale}, {Dtype::f32});
  return {.wide = wide[0], .scale = scale};
}

double first_scale(const UpdateBuilder& u, int power) {
  const auto& predictions = u.policy().gradient_rms;
  const auto rms = predictions.find(u.parameter());
  const double predicted = rms == predictions.end() ? 0 : std::round(rms->second);
  return std::exp2(std::clamp(power * predicted, -100.0, 100.0));
}

ValueId next_scale(UpdateBuilder& u, ValueId measured, ValueId old, std::string_view site) {
  Builder& b = u.b();
  const ValueId own = b.emit(OpCode::amax, NoAttrs{}, {measured})[AmaxOp::amax];
  const ValueId amax = u.max_over_ranks(own);
  const ValueId made = b.unary(OpCode::power_of_two, b.mul(amax, u.constant(0x1p-14)));
  const ValueId scale = b.select(u.skipped(), old, made);
  u.set(StateUse::fixed_scale, scale, site);
  return scale;
}

ValueId store_half(UpdateBuilder& u, ValueId next, ValueId scale, std::string_view site,
                   bool keeps_positive) {
  const StoreScaledAttrs attrs{.keeps_positive = keeps_positive,
                               .stream = u.stream(site.substr(1)),
                               .seed = u.policy().seed,
                               .first = u.first()};
  return u.b().emit1(OpCode::store_scaled, attrs, {next, scale, u.attempt()});
}

}  // namespace octet
