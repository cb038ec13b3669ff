// Muon (Jordan et al. 2024): steepest descent under the spectral norm, of matrices [rows, cols].
//   m' = momentum m + g    u = nesterov ? g + momentum m' : m'
//   w' = w - lr (f O(u) + wd w),  f: MuonScale
// O(u): five Newton-Schulz steps X <- a X + (b A + c A A) X, A = X X^T, from X = u / |u|
// (Frobenius), in BF16 products of f32 sums; of a tall matrix those of its transpose, A = X^T X on
// the right.
#include <algorithm>
#include <cmath>

#include "optim/rules/momentum.h"

namespace octet {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kSteps = 5;
constexpr double kLeastNorm = 1e-7;

class NewtonSchulz {
 public:
  NewtonSchulz(UpdateBuilder& u, MomentumUpdate& update, bool is_tall)
      : u_(u), update_(update), is_tall_(is_tall) {}

  // x: BF16, the whole matrix.
  ValueId orthogonal(ValueId x) {
    x = scaled(x, inverse_norm(x));
    for (int i = 0; i < kSteps; ++i) x = step(x);
    return x;
  }

 private:
  ValueId inverse_norm(ValueId x) {
    Builder& b = u_.b();
    const ValueId norm = b.emit_typed(OpCode::global_norm, NoAttrs{}, {u_.constant(0), x},
                                      {Dtype::f32, Dtype::f32, Dtype::boolean})[GlobalNorm::norm];
    const ValueId least = u_.constant(kLeastNorm);
    return b.div(u_.constant(1), b.emit1(OpCode::maximum, NoAttrs{}, {norm, least}));
  }
  ValueId scaled(ValueId x, ValueId factor) {
    return u_.b().emit_typed(OpCode::rescale, NoAttrs{}, {x, factor}, {Dtype::bf16})[0];
  }
  ValueId product(ValueId x, ValueId y, bool trans_x, bool trans_y) {
    return u_.b().emit_typed(OpCode::gemm, GemmAttrs{.trans_a = trans_x, .trans_b = trans_y},
                             {x, y}, {Dtype::f32})[0];
  }
  ValueId narrow(ValueId x) { return u_.b().cast(x, Dtype::bf16); }

  ValueId step(ValueId x) {
    Builder& b = u_.b();
    const ValueId a = narrow(product(x, x, is_tall_, !is_tall_));
    const ValueId square = product(a, a, false, false);
    const ValueId p = narrow(b.add(update_.times(a, kB), update_.times(square, kC)));
    const ValueId px = is_tall_ ? product(x, p, false, false) : product(p, x, false, false);
    return narrow(b.add(update_.times(x, kA), px));
  }

  UpdateBuilder& u_;
  MomentumUpdate& update_;
  bool is_tall_;
};

double factor(const Shape& shape, MuonScale scale) {
  const auto rows = static_cast<double>(shape[0]), cols = static_cast<double>(shape[1]);
  return scale == MuonScale::original ? std::sqrt(std::max(1.0, rows / cols))
                                      : 0.2 * std::sqrt(std::max(rows, cols));
}

void build_muon(UpdateBuilder& u) {
  Builder& b = u.b();
  const OptimPolicy& policy = u.policy();
  const Shape& shape = u.attrs().shape;
  MomentumUpdate update(u);
  const ValueId g = update.gradient();
  const ValueId direction = update.direction(g, g);
  NewtonSchulz newton(u, update, shape[0] > shape[1]);
  const ValueId whole = newton.orthogonal(u.whole(b.cast(direction, Dtype::bf16)));
  ValueId change = update.times(u.own(whole), factor(shape, policy.muon_scale));
  if (u.attrs().decay && policy.weight_decay != 0)
    change = b.add(change, update.times(update.weight(), policy.weight_decay));
  update.store_weight(b.sub(update.weight(), update.times(change, u.lr())));
}

}  // namespace

constinit const UpdateRule kMuonRule = {
    .kind = UpdateKind::muon, .states = momentum_states, .build = build_muon};

}  // namespace octet
