#include "optim/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/named_enum.h"
#include "optim/rules/rule.h"

namespace octet {
namespace {

constexpr const char* kOrigin = "optimizer";  // of what updates share
const TensorType kF32 = {Dtype::f32, {}};

TensorType scalar_type(Dtype dtype) {
  return {.dtype = dtype, .shape = {}};
}

struct StepInputs {
  ValueId lr = kNoValue, clip = kNoValue, grad_scale = kNoValue, found_nonfinite = kNoValue,
          attempt = kNoValue;
  std::map<std::string_view, ValueId> scalars = {};  // of rules, by name
};

// True if random words round anything: codes of 8 bits have an amax that they round.
bool draws_words(const UpdateItem& item, const OptimPolicy& policy, const Builder& builder) {
  const TensorType& weight = builder.type(item.weight);
  const auto draws = [](const StateFormat& format) {
    return format.stochastic || is_quantized(format.dtype);
  };
  const bool moments = draws(policy.state_m) || draws(policy.state_v);
  return (moments && weight.n_elems() >= policy.f32_below) ||
         ((policy.master == Master::bf16_sr || policy.master == Master::fp16_sr ||
           policy.master == Master::fp16_scaled) &&
          weight.dtype != Dtype::f32);
}

ValueId scalar_input(Builder& builder, std::string name) {
  return builder.input(InputKind::step_scalar, std::move(name), kF32);
}

// The scalars of all rules of these items, each once.
std::vector<std::string_view> rule_scalars(const std::vector<UpdateItem>& items) {
  std::vector<std::string_view> names;
  for (const UpdateRule* rule : update_rules()) {
    if (std::ranges::find(items, rule->kind, &UpdateItem::rule) == items.end()) continue;
    for (const std::string_view name : rule->scalars) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

StepInputs step_inputs(Builder& builder, const std::vector<UpdateItem>& items, Clipping clipping) {
  StepInputs in{.lr = scalar_input(builder, "lr")};
  if (clipping == Clipping::global_norm) {
    for (const std::string_view name : rule_scalars(items))
      in.scalars[name] = scalar_input(builder, std::string(name));
  }
  in.clip = scalar_input(builder, "clip");
  return in;
}

// A gradient that stays data and a scale, a power of two, until its update: one whose value a node
// of the update makes of them, a rescale of FP16 or a dequantize of codes.
struct KeptGradient {
  ValueId data = kNoValue, scale = kNoValue;
};
std::optional<KeptGradient> kept_gradient(const Graph& graph, ValueId gradient) {
  const Node* value = graph.producer(gradient);
  const bool is_kept = value != nullptr && value->tag.role == Role::update &&
                       (value->op == OpCode::rescale || value->op == OpCode::dequantize);
  if (!is_kept) return std::nullopt;
  return KeptGradient{.data = value->operands[0], .scale = value->operands[1]};
}

// BF16 holds every value of codes of 8 bits, and a power of two times it.
ValueId floats_of(Builder& builder, ValueId data, ValueId scale) {
  return is_quantized(builder.type(data).dtype) ? builder.dequantize(data, scale, Dtype::bf16)
                                                : data;
}

// The norm, scale and flag of these gradients together. Of one that is kept the norm of its data
// times the scale: no more than one is widened at a time.
ValueIds norm_of(Builder& builder, ValueId clip, const ValueIds& gradients) {
  ValueIds operands = {clip};
  ValueId one = kNoValue;
  for (const ValueId gradient : gradients) {
    const auto kept = kept_gradient(builder.graph(), gradient);
    if (!kept) {
      operands.push_back(gradient);
      continue;
    }
    if (one == kNoValue) one = builder.fill({}, 1);
    const ValueId data = floats_of(builder, kept->data, one);
    const ValueIds norm = builder.emit(OpCode::global_norm, NoAttrs{}, {clip, data});
    operands.push_back(builder.mul(norm[GlobalNorm::norm], kept->scale));
  }
  return builder.emit(OpCode::global_norm, NoAttrs{}, std::move(operands));
}

// Parts of a gradient that an update reads, and the factor beside it. AdamW reads FP16 data, whose
// scale joins the factor; other rules read values.
void choose_gradient(Builder& builder, const UpdateItem& item, ValueIds& operands) {
  const auto kept = kept_gradient(builder.graph(), item.gradient);
  if (!kept) return;
  if (is_quantized(builder.type(kept->data).dtype)) {
    operands[Update::g] = floats_of(builder, kept->data, kept->scale);
  } else if (item.rule == UpdateKind::adamw) {
    operands[Update::g] = kept->data;
    operands[Update::grad_scale] = builder.mul(operands[Update::grad_scale], kept->scale);
  }
}

void report_norm(Builder& builder, ValueId norm, ValueIds flags) {
  builder.output("grad_norm", norm);
  const bool one = flags.size() == 1;
  builder.output("found_nonfinite",
                 one ? flags[0] : builder.emit1(OpCode::any_of, NoAttrs{}, std::move(flags)));
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

  // Flag that one of those is set that are known before this value; kNoValue where there is none.
  // Values must come in the order in which they are made.
  ValueId before(ValueId value) {
    ValueIds flags_before;
    if (last_ != kNoValue) flags_before.push_back(last_);
    for (; next_ < flags_.size() && producer(flags_[next_]) < producer(value); ++next_)
      flags_before.push_back(flags_[next_]);
    if (flags_before.size() > 1)
      last_ = builder_.emit1(OpCode::any_of, NoAttrs{}, flags_before);
    else if (flags_before.size() == 1)
      last_ = flags_before[0];
    return last_;
  }
  NodeId producer(ValueId id) const { return builder_.graph().value(id).producer; }

 private:
  Builder& builder_;
  ValueIds flags_;
  size_t next_ = 0;
  ValueId last_ = kNoValue;
};

ValueId attempt_input(Builder& builder, const std::vector<UpdateItem>& items,
                      const OptimPolicy& policy) {
  const bool draws = std::any_of(items.begin(), items.end(), [&](const UpdateItem& item) {
    return draws_words(item, policy, builder);
  });
  return draws ? builder.input(InputKind::step_scalar, "attempt", scalar_type(Dtype::u32))
               : kNoValue;
}

std::string state_owner(const UpdateItem& item, const RuleState& state) {
  return item.parameter + std::string(state.site);
}

// Declares the parameter's states, and their next values as updates of them.
void append_item(Builder& builder, const UpdateItem& item, const PolicyBySize& policy,
                 const StepInputs& in) {
  const UpdateRule& rule = update_rule(item.rule);
  const TensorType& weight = builder.type(item.weight);
  const auto states = rule.states(weight, policy.of(weight.n_elems()));
  const UpdateAttrs attrs{.rule = item.rule,
                          .decay = item.decay,
                          .lr = item.lr,
                          .scalars = static_cast<int64_t>(rule.scalars.size()),
                          .shape = weight.shape};
  ValueIds operands = {item.weight,   item.gradient,      in.lr,
                       in.grad_scale, in.found_nonfinite, in.attempt};
  for (const std::string_view name : rule.scalars) operands.push_back(in.scalars.at(name));
  builder.tag.origin = item.parameter;
  choose_gradient(builder, item, operands);
  std::vector<ValueId> inputs = {item.weight};
  for (const RuleState& state : states)
    inputs.push_back(builder.state(state.use, state_owner(item, state), state.type));
  operands.insert(operands.end(), inputs.begin() + 1, inputs.end());
  const ValueIds results = builder.emit(OpCode::update, attrs, operands);
  builder.tag.origin = kOrigin;
  for (size_t i = 0; i < inputs.size(); ++i) builder.next(inputs[i], results[i]);
}

// One norm and one flag for all gradients.
void update_together(Builder& builder, const std::vector<UpdateItem>& items,
                     const OptimPolicy& policy, const StepGuards& guards, StepInputs in) {
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
  const PolicyBySize by_size(policy);
  for (const UpdateItem& item : items) append_item(builder, item, by_size, in);
}

// 1, but known only when the norms and flags of all gradients are.
ValueId scale_of_all(Builder& builder, ValueId norm_scale) {
  const ValueId found = builder.graph().find_output("found_nonfinite")->value;
  return builder.select(found, builder.fill({}, 1), norm_scale);
}

// A norm and a flag for each gradient.
void update_apart(Builder& builder, const std::vector<UpdateItem>& items, const OptimPolicy& policy,
                  ValueId flag, StepInputs in) {
  KnownFlags known(builder, flag);
  const PolicyBySize by_size(policy);
  std::vector<const UpdateItem*> by_time;
  by_time.reserve(items.size());
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
      in.found_nonfinite = builder.binary(OpCode::any_of, in.found_nonfinite, before);
    norms.push_back(norm[GlobalNorm::norm]);
    flags.push_back(in.found_nonfinite);
    builder.output(nonfinite_name(item->parameter), in.found_nonfinite);
    for (const std::string_view name : update_rule(item->rule).scalars)
      in.scalars[name] = scalar_input(builder, own_scalar_name(name, item->parameter));
    late.push_back(in);
    if (!is_late) append_item(builder, *item, by_size, in);
  }
  if (flag != kNoValue) flags.push_back(flag);
  const auto all = norm_of(builder, in.clip, norms);
  report_norm(builder, all[GlobalNorm::norm], flags);
  if (!is_late) return;
  const ValueId scale = scale_of_all(builder, all[GlobalNorm::grad_scale]);
  for (size_t i = 0; i < by_time.size(); ++i) {
    late[i].grad_scale = scale;
    append_item(builder, *by_time[i], by_size, late[i]);
  }
}

}  // namespace

PolicyBySize::PolicyBySize(const OptimPolicy& policy) : large_(policy), small_(policy) {
  small_.state_m = small_.state_v = StateFormat{};
}

TensorType master_type(const TensorType& weight, const OptimPolicy& policy) {
  const bool is_alone = policy.master == Master::bf16_sr || policy.master == Master::fp16_sr;
  if (weight.dtype == Dtype::f32 || is_alone) return absent_type();
  switch (policy.master) {
    case Master::fp16_scaled:
      return {Dtype::fp16, weight.shape};
    case Master::fp32:
      return {Dtype::f32, weight.shape};
    default:
      return {Dtype::i16, weight.shape};
  }
}

std::string own_scalar_name(std::string_view scalar, std::string_view parameter) {
  return fmt::format("{}:{}", scalar, parameter);
}

std::pair<std::string_view, std::string_view> parameter_of_scalar(std::string_view name) {
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return {name, {}};
  return {name.substr(0, colon), name.substr(colon + 1)};
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

void build_update(Builder& builder, const std::vector<UpdateItem>& items, const OptimPolicy& policy,
                  const StepGuards& guards) {
  builder.tag = Tag{.layer = -1, .role = Role::update, .origin = kOrigin};
  StepInputs in = step_inputs(builder, items, policy.clipping);
  in.attempt = attempt_input(builder, items, policy);
  if (policy.clipping == Clipping::global_norm) {
    update_together(builder, items, policy, guards, in);
  } else {
    CHECK(guards.loss_scale == kNoValue);
    update_apart(builder, items, policy, guards.flag, in);
  }
}

}  // namespace octet
