// LAMB (You et al. 2020, algorithm 2), AdamW's step with a length that is the weight's own:
//   m' = b1 m + (1-b1) g    v' = b2 v + (1-b2) g^2    r = (m' / c1) / (sqrt(v' / c2) + eps) + wd w
//   w' = w - lr |w| / |r| r,  but w - lr r where |w| or |r| is 0
// Norms are of the whole tensor, and exact sums, so that no number of ranks changes a bit.
#include "optim/rules/stored.h"

namespace octet {
namespace {

// |w| / |r|, 1 where one of them is 0.
ValueId trust_ratio(UpdateBuilder& u, ValueId w, ValueId r) {
  Builder& b = u.b();
  const ValueId size = u.norm(w), length = u.norm(r), zero = u.constant(0);
  const auto is_positive = [&](ValueId x) { return b.less(zero, x); };
  const ValueId ratio = b.select(is_positive(length), b.div(size, length), u.constant(1));
  return b.select(is_positive(size), ratio, u.constant(1));
}

void build_lamb(UpdateBuilder& u) {
  Builder& b = u.b();
  const OptimPolicy& policy = u.policy();
  StoredUpdate update(u);
  const auto [g, scale] = update.gradient();
  const ValueId one = u.constant(1), w = update.weight();
  const ValueId c1 = u.scalar(kAdamScalars[0]), c2 = u.scalar(kAdamScalars[1]);
  const ValueId squares = b.emit_typed(OpCode::square, NoAttrs{}, {g}, {Dtype::f32})[0];
  const ValueId m = u.sum({update.load(StateUse::moment1), u.constant(policy.beta1)},
                          {g, u.product(scale, u.constant(1 - policy.beta1))});
  const ValueId v =
      u.sum({update.load(StateUse::moment2), u.constant(policy.beta2)},
            {squares, u.product(u.product(scale, scale), u.constant(1 - policy.beta2))});
  update.store(StateUse::moment1, m);
  update.store(StateUse::moment2, v);
  const auto times = [&](ValueId x, ValueId factor) { return b.rescale(x, factor); };
  const ValueId root = b.unary(OpCode::sqrt, times(v, u.quotient(one, c2)));
  const ValueId eps = b.broadcast(u.constant(policy.eps), b.shape(root), {});
  ValueId r = b.div(times(m, u.quotient(one, c1)), b.add(root, eps));
  if (u.attrs().decay && policy.weight_decay != 0)
    r = u.sum({r, one}, {w, u.constant(policy.weight_decay)});
  const ValueId back = u.product(u.lr(), u.constant(-1));
  update.store_weight(u.sum({w, one}, {r, b.mul(back, trust_ratio(u, w, r))}));
}

}  // namespace

constinit const UpdateRule kLambRule = {.kind = UpdateKind::lamb,
                                        .scalars = kAdamScalars,
                                        .scalar = adam_correction,
                                        .states = adam_states,
                                        .build = build_lamb};

}  // namespace octet
