#include "optim/adamw.h"

#include "base/error.h"
#include "base/philox.h"

namespace octet {
namespace {

constexpr std::string_view kMasterNames[] = {"fp32", "bf16_remainder", "bf16_sr"};

TensorType scalar_type(Dtype dtype) {
  return {.dtype = dtype, .shape = {}};
}

struct StepInputs {
  ValueId lr, c1, c2, clip, grad_scale, found_nonfinite, attempt;
};

bool rounds_stochastically(const UpdateItem& item, const AdamwPolicy& policy,
                           const Builder& builder) {
  return policy.state_m.stochastic || policy.state_v.stochastic ||
         (policy.master == Master::bf16_sr && builder.type(item.weight).dtype != Dtype::f32);
}

StepInputs scalar_inputs(Builder& builder) {
  const auto scalar = [&](const char* name) {
    return builder.input(InputKind::step_scalar, name, scalar_type(Dtype::f32));
  };
  return {.lr = scalar("lr"),
          .c1 = scalar("adam_c1"),
          .c2 = scalar("adam_c2"),
          .clip = scalar("clip"),
          .grad_scale = kNoValue,
          .found_nonfinite = kNoValue,
          .attempt = kNoValue};
}

// The norm, scale and flag of these gradients together.
std::vector<ValueId> norm_of(Builder& builder, ValueId clip, std::vector<ValueId> gradients) {
  gradients.insert(gradients.begin(), clip);
  return builder.emit(OpCode::global_norm, NoAttrs{}, std::move(gradients));
}

void report_norm(Builder& builder, ValueId norm, std::vector<ValueId> flags) {
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
          .group = policy.group,
          .expand_m = policy.state_m.expand,
          .expand_v = policy.state_v.expand,
          .stochastic_m = policy.state_m.stochastic,
          .stochastic_v = policy.state_v.stochastic,
          .stochastic_w = policy.master == Master::bf16_sr && weight == Dtype::bf16,
          .math = policy.math,
          .stream = static_cast<int64_t>(name_hash(item.parameter)),
          .seed = policy.seed};
}

// Builds one parameter's step: declares its states, and their next values as updates of them.
class ItemUpdate {
 public:
  ItemUpdate(Builder& builder, const UpdateItem& item, const AdamwPolicy& policy)
      : builder_(builder), item_(item), policy_(policy), weight_(builder.type(item.weight)) {}

  void build(const StepInputs& in) {
    const ValueId m = state("adam_m:", first_moment_dtype(policy_.state_m), weight_.shape);
    const ValueId v = state("adam_v:", second_moment_dtype(policy_.state_v), weight_.shape);
    std::vector<ValueId> operands = {item_.weight,  item_.gradient,    m, v, in.lr, in.c1, in.c2,
                                     in.grad_scale, in.found_nonfinite};
    operands.push_back(master());
    operands.push_back(meta("adam_m_meta:", m));
    operands.push_back(meta("adam_v_meta:", v));
    operands.push_back(in.attempt);
    while (operands.back() == kNoValue) operands.pop_back();
    const AdamwAttrs attrs = update_attrs(item_, policy_, weight_.dtype);
    const auto results = builder_.emit(OpCode::adamw_step, attrs, operands);
    builder_.output("next:" + item_.parameter, results[0], item_.weight);
    for (size_t i = 0; i < states_.size(); ++i) {
      builder_.output("next:" + names_[i], results[i + 1], states_[i]);
    }
  }

 private:
  ValueId state(const char* prefix, Dtype dtype, Shape shape) {
    names_.push_back(prefix + item_.parameter);
    states_.push_back(builder_.input(InputKind::state, names_.back(),
                                     {.dtype = dtype, .shape = std::move(shape)}));
    return states_.back();
  }
  ValueId master() {
    if (weight_.dtype == Dtype::f32 || policy_.master == Master::bf16_sr) return kNoValue;
    const Dtype dtype = policy_.master == Master::fp32 ? Dtype::f32 : Dtype::i16;
    return state("master:", dtype, weight_.shape);
  }
  ValueId meta(const char* prefix, ValueId moment) {
    if (!is_quantized(builder_.type(moment).dtype)) return kNoValue;
    const int64_t n_groups = (weight_.n_elems() + policy_.group - 1) / policy_.group;
    return state(prefix, Dtype::u32, {n_groups});
  }

  Builder& builder_;
  const UpdateItem& item_;
  const AdamwPolicy& policy_;
  TensorType weight_;
  std::vector<std::string> names_;  // in the order of the results behind w
  std::vector<ValueId> states_;
};

}  // namespace

Master master_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kMasterNames); ++i) {
    if (kMasterNames[i] == name) return static_cast<Master>(i);
  }
  throw Error(ErrorCode::invalid_argument,
              "[master] expected fp32, bf16_remainder or bf16_sr, got {}", name);
}

void build_update(Builder& builder, const std::vector<UpdateItem>& items, const AdamwPolicy& policy,
                  ValueId flag) {
  builder.tag = Tag{.layer = -1, .role = Role::update, .origin = "optimizer"};
  StepInputs in = scalar_inputs(builder);
  const bool together = policy.clipping == Clipping::global_norm;
  std::vector<ValueId> gradients, norms, flags;
  if (flag != kNoValue) flags.push_back(flag);
  if (together) {
    for (const UpdateItem& item : items) gradients.push_back(item.gradient);
    const auto norm = norm_of(builder, in.clip, gradients);
    in.grad_scale = norm[1];
    flags.insert(flags.begin(), norm[2]);
    report_norm(builder, norm[0], flags);
    in.found_nonfinite = builder.graph().outputs.back().value;
  }
  for (const UpdateItem& item : items) {
    if (in.attempt == kNoValue && rounds_stochastically(item, policy, builder)) {
      in.attempt = builder.input(InputKind::step_scalar, "attempt", scalar_type(Dtype::u32));
    }
    if (!together) {
      const auto norm = norm_of(builder, in.clip, {item.gradient});
      in.grad_scale = norm[1];
      in.found_nonfinite = norm[2];
      norms.push_back(norm[0]);
      flags.push_back(norm[2]);
    }
    ItemUpdate(builder, item, policy).build(in);
  }
  if (!together) report_norm(builder, norm_of(builder, in.clip, norms)[0], flags);
}

}  // namespace octet
