#include "optim/adamw.h"

namespace octet {
namespace {

TensorType scalar_type(Dtype dtype) { return {.dtype = dtype, .shape = {}}; }

struct StepInputs {
  ValueId lr, c1, c2, grad_scale, found_nonfinite;
};

StepInputs build_norm(Builder& builder, const std::vector<UpdateItem>& items, ValueId flag) {
  StepInputs in{};
  in.lr = builder.input(InputKind::step_scalar, "lr", scalar_type(Dtype::f32));
  in.c1 = builder.input(InputKind::step_scalar, "adam_c1", scalar_type(Dtype::f32));
  in.c2 = builder.input(InputKind::step_scalar, "adam_c2", scalar_type(Dtype::f32));
  std::vector<ValueId> operands = {builder.input(InputKind::step_scalar, "clip", scalar_type(Dtype::f32))};
  for (const UpdateItem& item : items) operands.push_back(item.gradient);
  const auto results = builder.emit(OpCode::global_norm, NoAttrs{}, operands);
  builder.output("grad_norm", results[0]);
  in.grad_scale = results[1];
  in.found_nonfinite = flag == kNoValue ? results[2] : builder.emit1(OpCode::any_of, NoAttrs{}, {results[2], flag});
  builder.output("found_nonfinite", in.found_nonfinite);
  return in;
}

void update_one(Builder& builder, const UpdateItem& item, const AdamwPolicy& policy, const StepInputs& in) {
  const TensorType weight = builder.type(item.weight);
  const TensorType moment{.dtype = Dtype::f32, .shape = weight.shape};
  const ValueId m = builder.input(InputKind::state, "adam_m:" + item.parameter, moment);
  const ValueId v = builder.input(InputKind::state, "adam_v:" + item.parameter, moment);
  std::vector<ValueId> operands = {item.weight, item.gradient, m,  v, in.lr, in.c1, in.c2,
                                   in.grad_scale, in.found_nonfinite};
  ValueId master = kNoValue;
  if (weight.dtype != Dtype::f32) {
    const Dtype dtype = policy.master == Master::fp32 ? Dtype::f32 : Dtype::i16;
    master = builder.input(InputKind::state, "master:" + item.parameter, {.dtype = dtype, .shape = weight.shape});
    operands.push_back(master);
  }
  const AdamwAttrs attrs{.beta1 = policy.beta1, .beta2 = policy.beta2, .eps = policy.eps,
                         .weight_decay = item.decay ? policy.weight_decay : 0};
  const auto results = builder.emit(OpCode::adamw_step, attrs, operands);
  builder.output("next:" + item.parameter, results[0], item.weight);
  builder.output("next:adam_m:" + item.parameter, results[1], m);
  builder.output("next:adam_v:" + item.parameter, results[2], v);
  if (master != kNoValue) builder.output("next:master:" + item.parameter, results[3], master);
}

}  // namespace

void build_update(Builder& builder, const std::vector<UpdateItem>& items, const AdamwPolicy& policy, ValueId flag) {
  builder.tag = Tag{.layer = -1, .role = Role::update, .origin = "optimizer"};
  const StepInputs in = build_norm(builder, items, flag);
  for (const UpdateItem& item : items) update_one(builder, item, policy, in);
}

}  // namespace octet
