#include "optim/adamw.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/integer.h"
#include "base/named_enum.h"
#include "base/philox.h"
#include "ir/fixed_scale.h"

namespace octet {
namespace {

const TensorType kF32 = {Dtype::f32, {}};

TensorType scalar_type(Dtype dtype) {
  return {.dtype = dtype, .shape = {}};
}

struct StepInputs {
  ValueId lr, c1, c2, clip, grad_scale, found_nonfinite, attempt;
};

bool rounds_stochastically(const UpdateItem& item, const AdamwPolicy& policy,
                           const Builder& builder) {
  const TensorType& weight = builder.type(item.weight);
  const bool moments = policy.state_m.stochastic || policy.state_v.stochastic;
  return (moments && weight.n_elems() >= policy.f32_below) ||
         ((policy.master == Master::bf16_sr || policy.master == Master::fp16_sr ||
           policy.master == Master::fp16_scaled) &&
          weight.dtype != Dtype::f32);
}

ValueId scalar_input(Builder& builder, std::string name) {
  return builder.input(InputKind::step_scalar, std::move(name), kF32);
}

StepInputs scalar_inputs(Builder& builder, Clipping clipping) {
  const bool is_common = clipping == Clipping::global_norm;
  const auto scalar = [&](std::string_view name) {
    return scalar_input(builder, std::string(name));
  };
  return {.lr = scalar("lr"),
          .c1 = is_common ? scalar(kC1) : kNoValue,
          .c2 = is_common ? scalar(kC2) : kNoValue,
          .clip = scalar("clip"),
          .grad_scale = kNoValue,
          .found_nonfinite = kNoValue,
          .attempt = kNoValue};
}

// The norm, scale and flag of these gradients together.
ValueIds norm_of(Builder& builder, ValueId clip, ValueIds gradients) {
  gradients.insert(gradients.begin(), clip);
  return builder.emit(OpCode::global_norm, NoAttrs{}, std::move(gradients));
}

void report_norm(Builder& builder, ValueId norm, ValueIds flags) {
  builder.output("grad_norm", norm);
  const bool one = flags.size() == 1;
  builder.output("found_nonfinite",
                 one ? flags[0] : builder.emit1(OpCode::any_of, NoAttrs{}, std::move(flags)));
}

AdamwAttrs update_attrs(const UpdateItem& item, const AdamwPolicy& policy, Dtype weight) {
  return {.beta1 = policy.beta1,
          .beta2 = policy.beta2,
          .eps = policy.eps,
          .weight_decay = item.decay ? policy.weight_decay : 0,
          .expand_m = policy.state_m.expand,
          .expand_v = policy.state_v.expand,
          .stochastic_m = policy.state_m.stochastic && !is_scaled(policy.state_m),
          .stochastic_v = policy.state_v.stochastic && !is_scaled(policy.state_v),
          .stochastic_w = policy.master == Master::bf16_sr && weight == Dtype::bf16,
          .math = policy.math,
          .stream = static_cast<int64_t>(name_hash(item.parameter)),
          .seed = policy.seed};
}

// The policy for a tensor of this size.
AdamwPolicy policy_for(const AdamwPolicy& policy, int64_t n_elems) {
  AdamwPolicy result = policy;
  if (n_elems < policy.f32_below) result.state_m = result.state_v = StateFormat{};
  return result;
}

// The flags that `all` joins, by the nodes that make them.
class KnownFlags {
 public:
  KnownFlags(Builder& builder, ValueId all) : builder_(builder) {
    if (all == kNoValue) return;
    const Graph& graph = builder.graph();
    const Node* join = graph.producer(all, OpCode::any_of);
    flags_ = join != nullptr ? join->operands : std::vector{all};
    std::sort(flags_.begin(), flags_.end(),
              [&](ValueId a, ValueId b) { return producer(a) < producer(b); });
  }

  // Whether one of those is set that are known before this value; kNoValue where there is none.
  // Values must come in the order in which they are made.
  ValueId before(ValueId value) {
    ValueIds joined;
    if (last_ != kNoValue) joined.push_back(last_);
    for (; next_ < flags_.size() && producer(flags_[next_]) < producer(value); ++next_)
      joined.push_back(flags_[next_]);
    if (joined.size() > 1)
      last_ = builder_.emit1(OpCode::any_of, NoAttrs{}, joined);
    else if (joined.size() == 1)
      last_ = joined[0];
    return last_;
  }
  NodeId producer(ValueId id) const { return builder_.graph().value(id).producer; }

 private:
  Builder& builder_;
  ValueIds flags_;
  size_t next_ = 0;
  ValueId last_ = kNoValue;
};

// Scalars that all parameters' steps read, one node for each value.
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

// Builds one parameter's step: declares its states, and their next values as updates of them.
class ItemUpdate {
 public:
  ItemUpdate(Constants& constants, Builder& builder, const UpdateItem& item,
             const AdamwPolicy& policy)
      : constants_(constants),
        builder_(builder),
        item_(item),
        weight_(builder.type(item.weight)),
        policy_(policy_for(policy, weight_.n_elems())) {}

  void build(const StepInputs& in) {
    using S = AdamwStep;
    attempt_ = in.attempt, found_nonfinite_ = in.found_nonfinite;
    ValueIds operands(op_def(OpCode::adamw_step).operands.size(), kNoValue);
    operands[S::w] = weight();
    operands[S::g] = item_.gradient;
    operands[S::m] = moment(S::next_m, StateUse::moment1, first_moment_dtype(policy_.state_m));
    operands[S::v] = moment(S::next_v, StateUse::moment2, second_moment_dtype(policy_.state_v));
    operands[S::lr] = in.lr;
    operands[S::c1] = in.c1;
    operands[S::c2] = in.c2;
    operands[S::grad_scale] = in.grad_scale;
    operands[S::found_nonfinite] = in.found_nonfinite;
    operands[S::master] = master();
    operands[S::m_meta] = meta(S::next_m_meta, StateUse::moment1_meta, operands[S::m]);
    operands[S::v_meta] = meta(S::next_v_meta, StateUse::moment2_meta, operands[S::v]);
    const AdamwAttrs attrs = update_attrs(item_, policy_, weight_.dtype);
    if (attrs.stochastic_m || attrs.stochastic_v || attrs.stochastic_w)
      operands[S::attempt] = in.attempt;
    const auto results = builder_.emit(OpCode::adamw_step, attrs, operands);
    next_weight_ = results[S::next_w];
    for (const State& s : states_) builder_.next(s.value, stored(s, results[s.next]));
  }

 private:
  struct State {
    SlotId next;  // the result that follows it
    ValueId value;
    ValueId scale = kNoValue;  // of what is stored in FP16
    ValueId kept = kNoValue;   // where the scale is made anew: the input that holds it
    std::string_view draw = {};
  };

  ValueId state(SlotId next, StateUse use, TensorType type) {
    states_.push_back({next, builder_.state(use, item_.parameter, std::move(type))});
    return states_.back().value;
  }
  ValueId widened(OpCode op, ValueIds operands) {
    return builder_.emit_typed(op, NoAttrs{}, std::move(operands), {Dtype::f32})[0];
  }

  // FP16 weights without a master carry the fixed scale 1: what a model starts with lies in FP16's
  // window.
  ValueId weight() {
    const bool is_stored = policy_.master == Master::fp16_sr && weight_.dtype == Dtype::fp16;
    states_.push_back({AdamwStep::next_w, item_.weight});
    if (!is_stored) return item_.weight;
    states_.back().scale = constants_.of(1), states_.back().draw = ":w";
    return widened(OpCode::cast, {item_.weight});
  }

  // The first step's scale stays: what is stored means nothing without it.
  ValueId moment(SlotId next, StateUse use, Dtype dtype) {
    TensorType type{.dtype = dtype, .shape = weight_.shape};
    if (is_quantized(dtype))
      type.granularity = {
          .kind = Granularity::Kind::run, .size = policy_.group, .scale = Dtype::u32};
    const ValueId value = state(next, use, type);
    if (dtype != Dtype::fp16) return value;
    const bool is_first = use == StateUse::moment1;
    const auto rms = policy_.gradient_rms.find(item_.parameter);
    const double predicted = rms == policy_.gradient_rms.end() ? 0 : std::round(rms->second);
    const double log2 = std::clamp((is_first ? 1 : 2) * predicted, -100.0, 100.0);
    const ValueId kept = scale_of_last(is_first ? ":m" : ":v", std::exp2(log2));
    builder_.next(kept, states_.back().scale);
    return widened(OpCode::rescale, {value, states_.back().scale});
  }

  // Gives the last state the scale that is kept of it, or `first` where none is yet. The input.
  ValueId scale_of_last(std::string_view draw, double first) {
    const ValueId kept = builder_.state(
        StateUse::fixed_scale, fmt::format("{}.{}", item_.parameter, draw.substr(1)), kF32);
    const ValueId is_set = builder_.emit1(OpCode::less, NoAttrs{}, {constants_.of(0), kept});
    states_.back().scale = builder_.select(is_set, kept, constants_.of(first));
    states_.back().draw = draw;
    return kept;
  }

  // The largest magnitude comes to 2^14, within a factor of sqrt(2). A step that is skipped keeps
  // the scale with what it is of. Masters are measured by their BF16 weights, whose maximum the
  // update gives: that of the masters, rounded.
  ValueId new_scale(const State& state, ValueId next) {
    const ValueId amax = builder_.emit(OpCode::amax, NoAttrs{}, {next})[AmaxOp::amax];
    const ValueId made =
        builder_.unary(OpCode::power_of_two, builder_.mul(amax, constants_.of(0x1p-14)));
    const ValueId scale = builder_.select(found_nonfinite_, state.scale, made);
    builder_.next(state.kept, scale);
    return scale;
  }

  ValueId measured(ValueId master) const {
    return weight_.dtype == Dtype::bf16 ? next_weight_ : master;
  }

  ValueId stored(const State& state, ValueId next) {
    if (state.scale == kNoValue) return next;
    const ValueId scale = state.kept == kNoValue ? state.scale : new_scale(state, measured(next));
    const StoreScaledAttrs attrs{
        .keeps_positive = state.next == AdamwStep::next_v,
        .stream = static_cast<int64_t>(name_hash(item_.parameter + std::string(state.draw))),
        .seed = policy_.seed};
    return builder_.emit1(OpCode::store_scaled, attrs, {next, scale, attempt_});
  }

  ValueId master() {
    const bool is_alone = policy_.master == Master::bf16_sr || policy_.master == Master::fp16_sr;
    if (weight_.dtype == Dtype::f32 || is_alone) return kNoValue;
    if (policy_.master == Master::fp16_scaled) {
      const ValueId value =
          state(AdamwStep::next_master, StateUse::master, {Dtype::fp16, weight_.shape});
      states_.back().kept = scale_of_last(":w", kFirstMasterScale);
      return widened(OpCode::rescale, {value, states_.back().scale});
    }
    return policy_.master == Master::fp32
               ? state(AdamwStep::next_master, StateUse::master, {Dtype::f32, weight_.shape})
               : state(AdamwStep::next_master, StateUse::master_remainder,
                       {Dtype::i16, weight_.shape});
  }
  ValueId meta(SlotId next, StateUse use, ValueId moment) {
    const TensorType type = scale_type(builder_.type(moment));
    return type == absent_type() ? kNoValue : state(next, use, type);
  }

  Constants& constants_;
  Builder& builder_;
  const UpdateItem& item_;
  TensorType weight_;
  AdamwPolicy policy_;
  ValueId attempt_ = kNoValue, found_nonfinite_ = kNoValue, next_weight_ = kNoValue;
  std::vector<State> states_;  // the weight's first
};

ValueId attempt_input(Builder& builder, const std::vector<UpdateItem>& items,
                      const AdamwPolicy& policy) {
  const bool draws = std::any_of(items.begin(), items.end(), [&](const UpdateItem& item) {
    return rounds_stochastically(item, policy, builder);
  });
  return draws ? builder.input(InputKind::step_scalar, "attempt", scalar_type(Dtype::u32))
               : kNoValue;
}

// One norm and one flag for all gradients.
void update_together(Builder& builder, const std::vector<UpdateItem>& items,
                     const AdamwPolicy& policy, const StepGuards& guards, StepInputs in) {
  ValueIds gradients;
  for (const UpdateItem& item : items) gradients.push_back(item.gradient);
  const bool is_scaled = guards.loss_scale != kNoValue;
  if (is_scaled) in.clip = builder.mul(in.clip, guards.loss_scale);
  auto norm = norm_of(builder, in.clip, gradients);
  if (is_scaled) {
    const ValueId inverse = builder.div(builder.fill({}, 1), guards.loss_scale);
    for (const SlotId at : {GlobalNorm::norm, GlobalNorm::grad_scale})
      norm[at] = builder.mul(norm[at], inverse);
  }
  in.grad_scale = norm[GlobalNorm::grad_scale];
  ValueIds flags = {norm[GlobalNorm::found_nonfinite]};
  if (guards.flag != kNoValue) flags.push_back(guards.flag);
  report_norm(builder, norm[GlobalNorm::norm], flags);
  in.found_nonfinite = builder.graph().outputs.back().value;
  Constants constants(builder);
  for (const UpdateItem& item : items) ItemUpdate(constants, builder, item, policy).build(in);
}

// 1, but known only when the norms and flags of all gradients are.
ValueId scale_of_all(Builder& builder, ValueId norm_scale) {
  const ValueId found = builder.graph().find_output("found_nonfinite")->value;
  return builder.select(found, builder.fill({}, 1), norm_scale);
}

// A norm and a flag for each gradient.
void update_apart(Builder& builder, const std::vector<UpdateItem>& items, const AdamwPolicy& policy,
                  ValueId flag, StepInputs in) {
  KnownFlags known(builder, flag);
  Constants constants(builder);
  std::vector<const UpdateItem*> by_time;
  for (const UpdateItem& item : items) by_time.push_back(&item);
  std::stable_sort(by_time.begin(), by_time.end(), [&](const UpdateItem* a, const UpdateItem* b) {
    return known.producer(a->gradient) < known.producer(b->gradient);
  });
  const bool is_late = policy.release == Release::at_end;
  std::vector<StepInputs> late;
  ValueIds norms, flags;
  for (const UpdateItem* item : by_time) {
    const auto norm = norm_of(builder, in.clip, {item->gradient});
    const ValueId before = known.before(item->gradient);
    in.grad_scale = norm[GlobalNorm::grad_scale];
    in.found_nonfinite = norm[GlobalNorm::found_nonfinite];
    if (before != kNoValue)
      in.found_nonfinite = builder.emit1(OpCode::any_of, NoAttrs{}, {in.found_nonfinite, before});
    norms.push_back(norm[GlobalNorm::norm]);
    flags.push_back(in.found_nonfinite);
    builder.output(nonfinite_name(item->parameter), in.found_nonfinite);
    in.c1 = scalar_input(builder, own_scalar_name(kC1, item->parameter));
    in.c2 = scalar_input(builder, own_scalar_name(kC2, item->parameter));
    late.push_back(in);
    if (!is_late) ItemUpdate(constants, builder, *item, policy).build(in);
  }
  if (flag != kNoValue) flags.push_back(flag);
  const auto all = norm_of(builder, in.clip, norms);
  report_norm(builder, all[GlobalNorm::norm], flags);
  if (!is_late) return;
  const ValueId scale = scale_of_all(builder, all[GlobalNorm::grad_scale]);
  for (size_t i = 0; i < by_time.size(); ++i) {
    late[i].grad_scale = scale;
    ItemUpdate(constants, builder, *by_time[i], policy).build(late[i]);
  }
}

}  // namespace

std::string own_scalar_name(std::string_view scalar, std::string_view parameter) {
  return fmt::format("{}:{}", scalar, parameter);
}

Master master_from_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Master master : {Master::fp32, Master::bf16_remainder, Master::bf16_sr}) {
    if (enum_name(master) == name) return master;
    names.push_back(enum_name(master));
  }
  throw Error(ErrorCode::invalid_argument, "[master] expected one of {}, got {}",
              fmt::join(names, ", "), name);
}

void build_update(Builder& builder, const std::vector<UpdateItem>& items, const AdamwPolicy& policy,
                  const StepGuards& guards) {
  builder.tag = Tag{.layer = -1, .role = Role::update, .origin = "optimizer"};
  StepInputs in = scalar_inputs(builder, policy.clipping);
  in.attempt = attempt_input(builder, items, policy);
  if (policy.clipping == Clipping::global_norm) {
    update_together(builder, items, policy, guards, in);
  } else {
    CHECK(guards.loss_scale == kNoValue);
    update_apart(builder, items, policy, guards.flag, in);
  }
}

}  // namespace octet
