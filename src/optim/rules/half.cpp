// What a rule stores in FP16 with one scale a tensor (ir/fixed_scale.h).
#include <algorithm>
#include <cmath>

#include "optim/rules/rule.h"

namespace octet {

HalfState load_half(UpdateBuilder& u, ValueId value, std::string_view site, double first) {
  const ValueId kept = u.state(StateUse::fixed_scale, site);
  const ValueId is_set = u.b().emit1(OpCode::less, NoAttrs{}, {u.constant(0), kept});
  const ValueId scale = u.b().select(is_set, kept, u.constant(first));
  const ValueIds wide = u.b().emit_typed(OpCode::rescale, NoAttrs{}, {value, scale}, {Dtype::f32});
  return {.wide = wide[0], .scale = scale};
}

double first_scale(const UpdateBuilder& u, int power) {
  const auto& predictions = u.policy().gradient_rms;
  const auto rms = predictions.find(u.parameter());
  const double predicted = rms == predictions.end() ? 0 : std::round(rms->second);
  return std::exp2(std::clamp(power * predicted, -100.0, 100.0));
}

ValueId next_scale(UpdateBuilder& u, ValueId measured, ValueId old, std::string_view site) {
  Builder& b = u.b();
  const ValueId own = b.emit(OpCode::amax, NoAttrs{}, {measured})[AmaxOp::amax];
  const ValueId amax = u.max_over_ranks(own);
  const ValueId made = b.unary(OpCode::power_of_two, b.mul(amax, u.constant(0x1p-14)));
  const ValueId scale = b.select(u.skipped(), old, made);
  u.set(StateUse::fixed_scale, scale, site);
  return scale;
}

ValueId store_half(UpdateBuilder& u, ValueId next, ValueId scale, std::string_view site,
                   bool keeps_positive) {
  const StoreScaledAttrs attrs{.keeps_positive = keeps_positive,
                               .stream = u.stream(site.substr(1)),
                               .seed = u.policy().seed,
                               .first = u.first()};
  return u.b().emit1(OpCode::store_scaled, attrs, {next, scale, u.attempt()});
}

}  // namespace octet
