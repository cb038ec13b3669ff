// SGD with momentum, as PyTorch has it:
//   g += wd w    m' = momentum m + (1 - dampening) g, but g itself at the first step
//   w' = w - lr d,  d = g without momentum, with nesterov g + momentum m', else m'
#include "optim/rules/stored.h"

namespace octet {
namespace {

constexpr std::string_view kNew = "sgd_new";
constexpr std::string_view kSgdScalars[] = {kNew};

// The gradient's share of the momentum.
float share(std::string_view, const OptimPolicy& policy, int64_t t) {
  return t == 1 ? 1 : static_cast<float>(1 - policy.dampening);
}

void build_sgd(UpdateBuilder& u) {
  const OptimPolicy& policy = u.policy();
  StoredUpdate update(u);
  const Term w = {update.weight(), u.constant(1)};
  Term g = update.gradient();
  if (u.attrs().decay && policy.weight_decay != 0)
    g = {u.sum(g, {w.value, u.constant(policy.weight_decay)}), u.constant(1)};
  const bool dampens = policy.momentum != 0 && policy.dampening != 0;
  const Term d = update.direction(g, dampens ? u.scalar(kNew) : u.constant(1));
  const ValueId back = u.product(u.lr(), u.constant(-1));
  update.store_weight(u.sum(w, {d.value, u.product(back, d.factor)}));
}

}  // namespace

constinit const UpdateRule kSgdRule = {.kind = UpdateKind::sgd,
                                       .scalars = kSgdScalars,
                                       .scalar = share,
                                       .states = momentum_states,
                                       .build = build_sgd};

}  // namespace octet
