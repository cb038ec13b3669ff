// periodic_scale: a scale that is a power of two, measured from an amax; of a tensor of zeros the
// one of before. The arithmetic is formats/periodic_scale.h's. Source: Luo et al. 2024 (HiFloat8),
// per-tensor scaling.
#include "formats/periodic_scale.h"

#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet::ops {
namespace {

constexpr std::string_view kScaleOpName = "periodic_scale";

Results infer_periodic_scale(const Attrs& attrs, Types in) {
  defs::quant_scale.infer(attrs, in.first(1));
  need_float(kScaleOpName, "before", in[1], {});
  return {real({})};
}

// The smallest power of two p with amax / p <= target, at least 2^-100: the nearest one to the
// quotient, or its neighbour. Multiplied by powers of two, the target stays exact.
ValueId power_above(Builder& b, ValueId amax, double target) {
  const ValueId nearest = b.unary(OpCode::power_of_two, b.div(amax, b.fill({}, target)));
  const ValueId half = b.scaled(nearest, 0.5), twice = b.scaled(nearest, 2);
  const ValueId needs_nearest = b.less(b.scaled(half, target), amax);
  const ValueId needs_twice = b.less(b.scaled(nearest, target), amax);
  const ValueId power = b.select(needs_nearest, b.select(needs_twice, twice, nearest), half);
  return b.maximum(power, b.fill({}, kMinPeriodicScale));
}

Values decompose_periodic_scale(Builder& b, const Node& node) {
  const double target = std::get<AmaxScaleAttrs>(node.attrs).target;
  const ValueId amax = node.in(PeriodicScale::amax);
  const ValueId is_zero = b.equal(amax, b.fill({}, 0));
  return {b.select(is_zero, node.in(PeriodicScale::before), power_above(b, amax, target))};
}

}  // namespace

constinit const OpDef defs::periodic_scale = define(
    OpCode::periodic_scale, {.infer = infer_periodic_scale, .decompose = decompose_periodic_scale});

}  // namespace octet::ops
