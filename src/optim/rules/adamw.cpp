// AdamW as one adamw_step, which has codecs of its own for moments and masters; what is stored in
// FP16 with a scale is widened before it and stored behind it.
#include <cmath>

#include "base/philox.h"
#include "ir/fixed_scale.h"
#include "optim/rules/stored.h"

namespace octet {
namespace {

using S = AdamwStep;
constexpr std::string_view kScaleOfM = ".m", kScaleOfV = ".v";

class AdamwUpdate {
 public:
  explicit AdamwUpdate(UpdateBuilder& u) : u_(u) {}

  void build() {
    ValueIds operands(op_def(OpCode::adamw_step).operands.size(), kNoValue);
    operands[S::w] = weight();
    operands[S::g] = u_.gradient();
    operands[S::m] = moment(StateUse::moment1, S::next_m, kScaleOfM);
    operands[S::v] = moment(StateUse::moment2, S::next_v, kScaleOfV);
    operands[S::lr] = u_.lr();
    operands[S::c1] = u_.scalar(kAdamScalars[0]);
    operands[S::c2] = u_.scalar(kAdamScalars[1]);
    operands[S::grad_scale] = u_.grad_scale();
    operands[S::found_nonfinite] = u_.skipped();
    operands[S::master] = master();
    operands[S::m_meta] = plain(StateUse::moment1_meta, S::next_m_meta);
    operands[S::v_meta] = plain(StateUse::moment2_meta, S::next_v_meta);
    const AdamwAttrs attrs = step_attrs();
    if (attrs.stochastic_m || attrs.stochastic_v || attrs.stochastic_w ||
        operands[S::m_meta] != kNoValue || operands[S::v_meta] != kNoValue)
      operands[S::attempt] = u_.attempt();
    const auto results = u_.b().emit(OpCode::adamw_step, attrs, operands);
    next_weight_ = results[S::next_w];
    for (const Kept& kept : kept_) {
      const ValueId next = stored(kept, results[kept.next]);
      kept.use == StateUse::none ? u_.set_weight(next) : u_.set(kept.use, next);
    }
  }

 private:
  // Value that is read and written: the weight (no use), or a state.
  struct Kept {
    SlotId next;  // the result that follows it
    StateUse use = StateUse::none;
    ValueId scale = kNoValue;    // of what is stored in FP16
    std::string_view site = {};  // the state that the scale is
    bool is_measured = false;    // whether the scale is made anew of each step's maximum
  };

  AdamwAttrs step_attrs() const {
    const OptimPolicy& policy = u_.policy();
    const Dtype weight = u_.b().type(u_.weight()).dtype;
    return {.beta1 = policy.beta1,
            .beta2 = policy.beta2,
            .eps = policy.eps,
            .weight_decay =
                u_.attrs().decay ? policy.weight_decay / policy.lr_factor(u_.parameter()) : 0,
            .expand_m = policy.state_m.expand,
            .expand_v = policy.state_v.expand,
            .stochastic_m = policy.state_m.stochastic && !is_scaled(policy.state_m),
            .stochastic_v = policy.state_v.stochastic && !is_scaled(policy.state_v),
            .stochastic_w = policy.master == Master::bf16_sr && weight == Dtype::bf16,
            .math = policy.math,
            .stream = static_cast<int64_t>(name_hash(u_.parameter())),
            .seed = policy.seed,
            .first = u_.first()};
  }

  // FP16 weights without a master carry the fixed scale 1: what a model starts with lies in FP16's
  // window.
  ValueId weight() {
    const bool is_fp16 = u_.b().type(u_.weight()).dtype == Dtype::fp16;
    kept_.push_back({.next = S::next_w});
    if (u_.policy().master != Master::fp16_sr || !is_fp16) return u_.weight();
    kept_.back().scale = u_.constant(1), kept_.back().site = kScaleOfMaster;
    return u_.b().cast(u_.weight(), Dtype::f32);
  }

  ValueId plain(StateUse use, SlotId next) {
    const ValueId value = u_.state(use);
    if (value != kNoValue) kept_.push_back({.next = next, .use = use});
    return value;
  }

  ValueId half(ValueId value, std::string_view site, double first) {
    const HalfState half = load_half(u_, value, site, first);
    kept_.back().scale = half.scale, kept_.back().site = site;
    return half.wide;
  }

  // The first step's scale stays: what is stored means nothing without it.
  ValueId moment(StateUse use, SlotId next, std::string_view site) {
    const ValueId value = plain(use, next);
    if (u_.b().type(value).dtype != Dtype::fp16) return value;
    const ValueId wide = half(value, site, first_scale(u_, use == StateUse::moment1 ? 1 : 2));
    u_.set(StateUse::fixed_scale, kept_.back().scale, site);
    return wide;
  }

  ValueId master() {
    if (u_.state(StateUse::master_remainder) != kNoValue)
      return plain(StateUse::master_remainder, S::next_master);
    const ValueId value = plain(StateUse::master, S::next_master);
    if (value == kNoValue || u_.b().type(value).dtype != Dtype::fp16) return value;
    kept_.back().is_measured = true;
    return half(value, kScaleOfMaster, kFirstMasterScale);
  }

  // Masters are measured by their BF16 weights, whose maximum the update gives: that of the
  // masters, rounded.
  ValueId stored(const Kept& kept, ValueId next) {
    if (kept.scale == kNoValue) return next;
    const bool has_bf16 = u_.b().type(u_.weight()).dtype == Dtype::bf16;
    const ValueId scale =
        kept.is_measured ? next_scale(u_, has_bf16 ? next_weight_ : next, kept.scale, kept.site)
                         : kept.scale;
    return store_half(u_, next, scale, kept.site, kept.next == S::next_v);
  }

  UpdateBuilder& u_;
  ValueId next_weight_ = kNoValue;
  std::vector<Kept> kept_;  // the weight first
};

void build_adamw(UpdateBuilder& u) {
  AdamwUpdate(u).build();
}

}  // namespace

float adam_correction(std::string_view name, const OptimPolicy& policy, int64_t t) {
  const double beta = name == kAdamScalars[0] ? policy.beta1 : policy.beta2;
  return static_cast<float>(1 - std::pow(beta, static_cast<double>(t)));
}

std::vector<RuleState> adam_states(const TensorType& weight, const OptimPolicy& policy) {
  constexpr StateUse kUses[] = {StateUse::moment1, StateUse::moment2};
  return stored_states(weight, policy, kUses);
}

constinit const UpdateRule kAdamwRule = {.kind = UpdateKind::adamw,
                                         .scalars = kAdamScalars,
                                         .scalar = adam_correction,
                                         .states = adam_states,
                                         .build = build_adamw};

}  // namespace octet
