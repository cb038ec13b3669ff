// periodic_scale: a scale that is a power of two and stays for `period` steps. The memory is what
// lasts from step to step: f32 {scale (0: none yet), the largest amax since it was made, the steps
// that it has served}. The arithmetic is formats/periodic_scale.h's. Source: Luo et al. 2024
// (HiFloat8), per-tensor scaling.
#include "formats/periodic_scale.h"

#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet::ops {
namespace {

constexpr std::string_view kScaleOpName = "periodic_scale";

Results infer_periodic_scale(const Attrs& attrs, Types in) {
  const auto& a = std::get<PeriodicScaleAttrs>(attrs);
  kQuantScale.infer(a.q, in.first(1));
  need_float(kScaleOpName, "memory", in[1], {kScaleMemory});
  if (a.period < 1) fail(kScaleOpName, "period must be at least 1, got {}", a.period);
  return {real({}), in[1]};
}

ValueId less(Builder& b, ValueId x, ValueId y) {
  return b.emit1(OpCode::less, NoAttrs{}, {x, y});
}

// The smallest power of two p with amax / p <= target, at least 2^-100: the nearest one to the
// quotient, or its neighbour. Multiplied by powers of two, the target stays exact.
ValueId power_above(Builder& b, ValueId amax, double target) {
  const ValueId nearest = b.unary(OpCode::power_of_two, b.div(amax, b.fill({}, target)));
  const ValueId half = b.scaled(nearest, 0.5), twice = b.scaled(nearest, 2);
  const ValueId needs_nearest = less(b, b.scaled(half, target), amax);
  const ValueId needs_twice = less(b, b.scaled(nearest, target), amax);
  const ValueId power = b.select(needs_nearest, b.select(needs_twice, twice, nearest), half);
  return b.emit1(OpCode::maximum, NoAttrs{}, {power, b.fill({}, kLeastPeriodicScale)});
}

Values decompose_periodic_scale(Builder& b, const Node& node) {
  const auto& a = std::get<PeriodicScaleAttrs>(node.attrs);
  const auto entry = [&](int64_t i) {
    const SliceAttrs at{.start = {i}, .limit = {i + 1}, .stride = {1}};
    return b.reshape(b.emit1(OpCode::slice, at, {node.in(PeriodicScale::memory)}), {});
  };
  const ValueId zero = b.fill({}, 0), one = b.fill({}, 1);
  const ValueId scale = entry(0), steps = entry(2);
  const ValueId largest =
      b.emit1(OpCode::maximum, NoAttrs{}, {entry(1), node.in(PeriodicScale::amax)});
  const ValueId is_old = less(b, b.fill({}, static_cast<double>(a.period) - 0.5), steps);
  const ValueId has_one = less(b, zero, scale),
                is_zero = b.emit1(OpCode::equal, NoAttrs{}, {largest, zero});
  const ValueId made = b.select(is_zero, one, power_above(b, largest, a.q.target));
  const auto by_age = [&](ValueId renewed, ValueId kept) {
    return b.select(has_one, b.select(is_old, renewed, kept), renewed);
  };
  const ValueId next[] = {by_age(b.select(is_zero, zero, made), scale), by_age(zero, largest),
                          by_age(one, b.add(steps, one))};
  std::vector<ValueId> entries;
  for (const ValueId value : next) entries.push_back(b.reshape(value, {1}));
  const ValueId memory = b.emit1(OpCode::concatenate, AxisAttrs{.axis = 0}, entries);
  return {by_age(made, scale), memory};
}

constexpr InplacePair kInplaceMemory[] = {
    {.result = PeriodicScale::next_memory, .operand = PeriodicScale::memory}};

}  // namespace

constinit const OpDef kPeriodicScale = {.code = OpCode::periodic_scale,
                                        .name = kScaleOpName,
                                        .operands = PeriodicScale::operands,
                                        .results = PeriodicScale::results,
                                        .infer = infer_periodic_scale,
                                        .attrs = default_attrs<PeriodicScaleAttrs>,
                                        .decompose = decompose_periodic_scale,
                                        .inplace = kInplaceMemory,
                                        .statistics = 1};

}  // namespace octet::ops
