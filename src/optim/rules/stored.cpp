#include "optim/rules/stored.h"

#include <algorithm>

#include "base/error.h"
#include "ir/fixed_scale.h"

namespace octet {
namespace {

// A state with a format of its own: what lies beside its codes, and its site, which keys its scale
// in FP16 and its random words.
struct Place {
  StateUse use, meta;
  std::string_view site;
};
constexpr Place kPlaces[] = {{StateUse::momentum, StateUse::momentum_meta, ".m"},
                             {StateUse::moment1, StateUse::moment1_meta, ".m"},
                             {StateUse::moment2, StateUse::moment2_meta, ".v"}};
const Place& place_of(StateUse use) {
  const auto place = std::ranges::find(kPlaces, use, &Place::use);
  CHECK(place != std::end(kPlaces));
  return *place;
}

const StateFormat& format_of(StateUse use, const OptimPolicy& policy) {
  return use == StateUse::moment2 ? policy.state_v : policy.state_m;
}
TensorType type_of(StateUse use, const TensorType& weight, const OptimPolicy& policy) {
  const Dtype dtype = use == StateUse::moment2 ? second_moment_dtype(policy.state_v)
                                               : first_moment_dtype(policy.state_m);
  return state_type(weight, dtype, policy);
}

}  // namespace

std::vector<RuleState> stored_states(const TensorType& weight, const OptimPolicy& policy,
                                     std::span<const StateUse> uses) {
  std::vector<RuleState> states;
  for (const StateUse use : uses)
    add_state(states, use, type_of(use, weight, policy), place_of(use).site);
  add_master(states, weight, policy);
  for (const StateUse use : uses) {
    const TensorType type = type_of(use, weight, policy);
    if (type.is_scaled()) states.push_back({place_of(use).meta, scale_type(type)});
  }
  return states;
}

std::vector<RuleState> momentum_states(const TensorType& weight, const OptimPolicy& policy) {
  constexpr StateUse kUses[] = {StateUse::momentum};
  return stored_states(weight, policy,
                       std::span<const StateUse>(kUses).first(policy.momentum == 0 ? 0 : 1));
}

StoredUpdate::Loaded StoredUpdate::load_weight() {
  Builder& b = u_.b();
  const ValueId w = u_.weight(), rest = u_.state(StateUse::master_remainder);
  if (rest != kNoValue) return {b.emit1(OpCode::load_state, StateAttrs{}, {w, rest})};
  const ValueId master = u_.state(StateUse::master);
  if (master == kNoValue) return {b.type(w).dtype == Dtype::f32 ? w : b.cast(w, Dtype::f32)};
  if (b.type(master).dtype == Dtype::f32) return {master};
  const HalfState half = load_half(u_, master, kScaleOfMaster, kFirstMasterScale);
  return {half.wide, half.scale};
}

const StoredUpdate::Loaded& StoredUpdate::loaded(StateUse use) {
  const auto [at, is_new] = loaded_.try_emplace(use);
  Loaded& result = at->second;
  if (!is_new) return result;
  const ValueId x = u_.state(use);
  const Place& place = place_of(use);
  const Dtype dtype = u_.b().type(x).dtype;
  if (dtype == Dtype::f32) return result = {x};
  if (dtype == Dtype::fp16) {
    const int power = use == StateUse::moment2 ? 2 : 1;
    const HalfState half = load_half(u_, x, place.site, first_scale(u_, power));
    u_.set(StateUse::fixed_scale, half.scale, place.site);
    return result = {half.wide, half.scale};
  }
  const ValueId meta = u_.state(place.meta);
  return result = {u_.b().emit1(OpCode::load_state, attrs_of(use), {x, meta})};
}

StateAttrs StoredUpdate::attrs_of(StateUse use) const {
  const OptimPolicy& policy = u_.policy();
  const StateFormat& format = format_of(use, policy);
  return {.second = use == StateUse::moment2,
          .expand = format.expand,
          .stochastic = format.stochastic && !is_scaled(format),
          .math = policy.math,
          .stream = u_.stream(place_of(use).site.substr(1)),
          .seed = policy.seed,
          .first = u_.first()};
}

ValueId StoredUpdate::guarded(const Loaded& old, ValueId next) {
  Builder& b = u_.b();
  return b.select(b.broadcast(u_.skipped(), b.shape(next), {}), old.value, next);
}

ValueIds StoredUpdate::stored(ValueId next, const StateAttrs& attrs, ValueId old, ValueId rest) {
  const bool draws = attrs.stochastic || u_.b().type(old).is_scaled();
  const ValueId attempt = draws ? u_.attempt() : kNoValue;
  return u_.b().emit(OpCode::store_state, attrs, {next, u_.skipped(), old, attempt, rest});
}

Term StoredUpdate::direction(const Term& g, ValueId share, Dtype dtype) {
  const OptimPolicy& policy = u_.policy();
  if (policy.momentum == 0) return g;
  const ValueId decay = u_.constant(policy.momentum), one = u_.constant(1);
  const ValueId m =
      u_.sum({load(StateUse::momentum), decay}, {g.value, u_.product(g.factor, share)});
  store(StateUse::momentum, m);
  if (policy.nesterov) return {u_.sum(g, {m, decay}, dtype), one};
  return {dtype == Dtype::f32 ? m : u_.b().cast(m, dtype), one};
}

void StoredUpdate::store(StateUse use, ValueId next) {
  const Place& place = place_of(use);
  const ValueId old = u_.state(use), meta = u_.state(place.meta);
  const Loaded& was = loaded(use);
  if (was.scale != kNoValue) {
    const bool keeps_positive = use == StateUse::moment2;
    return u_.set(use, store_half(u_, guarded(was, next), was.scale, place.site, keeps_positive));
  }
  const ValueIds results = stored(next, attrs_of(use), old, meta);
  u_.set(use, results[StoreState::y]);
  if (meta != kNoValue) u_.set(place.meta, results[StoreState::rest]);
}

void StoredUpdate::store_weight(ValueId next) {
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
