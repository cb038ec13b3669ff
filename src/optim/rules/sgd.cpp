// SGD with momentum, as PyTorch has it:
//   g += wd w    m' = momentum m + (1 - dampening) g, but g itself at the first step
//   w' = w - lr d,  d = g without momentum, with nesterov g + momentum m', else m'
#include "optim/rules/momentum.h"

namespace octet {
namespace {

constexpr std::string_view kNew = "sgd_new";
constexpr std::string_view kSgdScalars[] = {kNew};

// The gradient's share of the momentum.
float share(std::string_view, const OptimPolicy& policy, int64_t t) {
  return t == 1 ? 1 : static_cast<float>(1 - policy.dampening);
}

void build_sgd(UpdateBuilder& u) {
  Builder& b = u.b();
  const OptimPolicy& policy = u.policy();
  MomentumUpdate update(u);
  ValueId g = update.gradient();
  if (u.attrs().decay && policy.weight_decay != 0)
    g = b.add(g, update.times(update.weight(), policy.weight_decay));
  const bool dampens = policy.momentum != 0 && policy.dampening != 0;
  const ValueId direction = update.direction(g, dampens ? update.times(g, u.scalar(kNew)) : g);
  update.store_weight(b.sub(update.weight(), update.times(direction, u.lr())));
}

}  // namespace

constinit const UpdateRule kSgdRule = {.kind = UpdateKind::sgd,
                                       .scalars = kSgdScalars,
                                       .scalar = share,
                                       .states = momentum_states,
                                       .build = build_sgd};

}  // namespace octet
