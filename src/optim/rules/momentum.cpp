#include "optim/rules/momentum.h"

#include "ir/fixed_scale.h"

namespace octet {
namespace {

constexpr std::string_view kScaleOfMomentum = ".m";

}  // namespace

std::vector<RuleState> momentum_states(const TensorType& weight, const OptimPolicy& policy) {
  const TensorType type = state_type(weight, first_moment_dtype(policy.state_m), policy);
  std::vector<RuleState> states;
  if (policy.momentum != 0) add_state(states, StateUse::momentum, type, kScaleOfMomentum);
  add_master(states, weight, policy);
  if (policy.momentum != 0 && type.is_scaled())
    states.push_back({StateUse::momentum_meta, scale_type(type)});
  return states;
}

MomentumUpdate::MomentumUpdate(UpdateBuilder& u) : u_(u) {
  weight_ = load_weight();
  momentum_ = load_momentum();
}

ValueId MomentumUpdate::gradient() {
  return times(u_.gradient(), u_.grad_scale());
}

ValueId MomentumUpdate::times(ValueId x, ValueId factor) {
  return u_.b().emit_typed(OpCode::rescale, NoAttrs{}, {x, factor}, {Dtype::f32})[0];
}

MomentumUpdate::Loaded MomentumUpdate::load_weight() {
  Builder& b = u_.b();
  const ValueId w = u_.weight(), rest = u_.state(StateUse::master_remainder);
  if (rest != kNoValue) return {b.emit1(OpCode::load_state, StateAttrs{}, {w, rest})};
  const ValueId master = u_.state(StateUse::master);
  if (master == kNoValue) return {b.type(w).dtype == Dtype::f32 ? w : b.cast(w, Dtype::f32)};
  if (b.type(master).dtype == Dtype::f32) return {master};
  const HalfState half = load_half(u_, master, kScaleOfMaster, kFirstMasterScale);
  return {half.wide, half.scale};
}

MomentumUpdate::Loaded MomentumUpdate::load_momentum() {
  const ValueId m = u_.state(StateUse::momentum);
  if (m == kNoValue) return {};
  const TensorType& type = u_.b().type(m);
  if (type.dtype == Dtype::f32) return {m};
  if (type.dtype == Dtype::fp16) {
    const HalfState half = load_half(u_, m, kScaleOfMomentum, first_scale(u_, 1));
    u_.set(StateUse::fixed_scale, half.scale, kScaleOfMomentum);
    return {half.wide, half.scale};
  }
  const ValueId meta = u_.state(StateUse::momentum_meta);
  return {u_.b().emit1(OpCode::load_state, momentum_attrs(), {m, meta})};
}

StateAttrs MomentumUpdate::momentum_attrs() const {
  const OptimPolicy& policy = u_.policy();
  return {.expand = policy.state_m.expand,
          .stochastic = policy.state_m.stochastic && !is_scaled(policy.state_m),
          .math = policy.math,
          .stream = u_.stream("m"),
          .seed = policy.seed,
          .first = u_.first()};
}

ValueId MomentumUpdate::guarded(const Loaded& old, ValueId next) {
  Builder& b = u_.b();
  return b.select(b.broadcast(u_.skipped(), b.shape(next), {}), old.value, next);
}

ValueIds MomentumUpdate::stored(ValueId next, const StateAttrs& attrs, ValueId old, ValueId rest) {
  const ValueId attempt = attrs.stochastic ? u_.attempt() : kNoValue;
  return u_.b().emit(OpCode::store_state, attrs, {next, u_.skipped(), old, attempt, rest});
}

ValueId MomentumUpdate::direction(ValueId g, ValueId added) {
  const OptimPolicy& policy = u_.policy();
  if (policy.momentum == 0) return g;
  const ValueId m = u_.b().add(times(momentum(), policy.momentum), added);
  const ValueId along = policy.nesterov ? u_.b().add(g, times(m, policy.momentum)) : m;
  store_momentum(m);
  return along;
}

void MomentumUpdate::store_momentum(ValueId next) {
  const ValueId old = u_.state(StateUse::momentum), meta = u_.state(StateUse::momentum_meta);
  if (momentum_.scale != kNoValue)
    return u_.set(StateUse::momentum,
                  store_half(u_, guarded(momentum_, next), momentum_.scale, kScaleOfMomentum));
  const ValueIds results = stored(next, momentum_attrs(), old, meta);
  u_.set(StateUse::momentum, results[StoreState::y]);
  if (meta != kNoValue) u_.set(StateUse::momentum_meta, results[StoreState::rest]);
}

void MomentumUpdate::store_weight(ValueId next) {
  Builder& b = u_.b();
  const ValueId w = u_.weight(), rest = u_.state(StateUse::master_remainder);
  const ValueId master = u_.state(StateUse::master);
  const Dtype dtype = b.type(w).dtype;
  if (rest != kNoValue) {
    const ValueIds results = stored(next, {}, w, rest);
    u_.set_weight(results[StoreState::y]);
    u_.set(StateUse::master_remainder, results[StoreState::rest]);
  } else if (master == kNoValue && dtype == Dtype::fp16) {
    u_.set_weight(store_half(u_, guarded(weight_, next), u_.constant(1), kScaleOfMaster));
  } else if (master == kNoValue) {
    const StateAttrs attrs{.stochastic = dtype == Dtype::bf16,
                           .stream = u_.stream("w"),
                           .seed = u_.policy().seed,
                           .first = u_.first()};
    u_.set_weight(stored(next, attrs, w)[StoreState::y]);
  } else if (b.type(master).dtype == Dtype::f32) {
    const ValueId kept = stored(next, {}, master)[StoreState::y];
    u_.set(StateUse::master, kept);
    u_.set_weight(b.cast(kept, dtype));
  } else {
    const ValueId kept = guarded(weight_, next), narrow = b.cast(kept, dtype);
    const ValueId scale = next_scale(u_, narrow, weight_.scale, kScaleOfMaster);
    u_.set(StateUse::master, store_half(u_, kept, scale, kScaleOfMaster));
    u_.set_weight(narrow);
  }
}

}  // namespace octet
