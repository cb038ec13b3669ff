#include "passes/loss_scale.h"

#include <algorithm>

namespace octet {
namespace {

// An input of the graph, or made one.
ValueId state_of(Builder& b, std::string_view owner) {
  const std::string name = state_name(StateUse::loss_scale, owner);
  if (const GraphInput* input = b.graph().find_input(name)) return input->value;
  const Dtype dtype = b.graph().phase == Phase::logical ? Dtype::real : Dtype::f32;
  return b.state(StateUse::loss_scale, owner, {.dtype = dtype, .shape = {}});
}

ValueId constant(Builder& b, double value) {
  return b.fill({}, value);
}

// The state, or `first` where it is 0.
ValueId begun(Builder& b, std::string_view owner, double first) {
  const ValueId state = state_of(b, owner);
  const ValueId is_new = b.equal(state, constant(b, 0));
  return b.select(is_new, constant(b, first), state);
}

// The next larger window, or the next smaller one; at the ends the same.
ValueId window_above(Builder& b, ValueId window) {
  ValueId result = constant(b, kLossWindows.back());
  for (auto it = kLossWindows.rbegin(); it != kLossWindows.rend(); ++it)
    result = b.select(b.less(window, constant(b, *it)), constant(b, *it), result);
  return result;
}
ValueId window_below(Builder& b, ValueId window) {
  ValueId result = constant(b, kLossWindows.front());
  for (const double size : kLossWindows)
    result = b.select(b.less(constant(b, size), window), constant(b, size), result);
  return result;
}

// Change of S by this step: it falls or rises.
struct Change {
  ValueId falls, rises;
  // By which of the two it is; rises is read where nothing falls.
  ValueId pick(Builder& b, ValueId fallen, ValueId risen, ValueId same) const {
    return b.select(falls, fallen, b.select(rises, risen, same));
  }
};

void move_window(Builder& b, const Change& change, ValueId window) {
  const ValueId rises = state_of(b, kLossScaleRises), streak = state_of(b, kLossScaleStreak);
  const ValueId zero = constant(b, 0), one = constant(b, 1), minus_one = constant(b, -1);
  const ValueId fallen = b.select(b.less(zero, streak), minus_one, b.sub(streak, one));
  const ValueId in_a_row = change.pick(b, fallen, zero, streak);
  const ValueId risen = change.pick(b, rises, b.add(rises, one), rises);
  const ValueId is_up = b.less(constant(b, kWindowMoves - 0.5), risen);
  const ValueId is_down = b.less(in_a_row, constant(b, 0.5 - kWindowMoves));
  b.next(
      state_of(b, kLossScaleWindow),
      b.select(is_up, window_above(b, window), b.select(is_down, window_below(b, window), window)));
  b.next(rises, b.select(is_up, zero, risen));
  b.next(streak, b.select(is_down, zero, in_a_row));
}

}  // namespace

ValueId loss_scale(Builder& builder, const LossScalePolicy& policy) {
  return begun(builder, kLossScaleValue, policy.first);
}

void update_loss_scale(Builder& b, const LossScalePolicy& policy, ValueId overflow) {
  b.tag = Tag{.layer = -1, .role = Role::update, .origin = "loss_scale"};
  const ValueId scale = loss_scale(b, policy);
  const ValueId window = begun(b, kLossScaleWindow, policy.first_window());
  const ValueId good_steps = state_of(b, kLossScaleGoodSteps);
  const ValueId zero = constant(b, 0), more = b.plus(good_steps, 1);
  const Change change{.falls = overflow, .rises = b.less(b.plus(window, -0.5), more)};
  const ValueId half =
      b.emit1(OpCode::maximum, NoAttrs{}, {b.scaled(scale, 0.5), constant(b, kMinLossScale)});
  const ValueId twice =
      b.emit1(OpCode::minimum, NoAttrs{}, {b.scaled(scale, 2), constant(b, kMaxLossScale)});
  b.next(state_of(b, kLossScaleValue), change.pick(b, half, twice, scale));
  b.next(good_steps, change.pick(b, zero, zero, more));
  if (policy.kind == LossScaling::adaptive) {
    move_window(b, change, window);
  } else {
    b.next(state_of(b, kLossScaleWindow), window);
  }
}

}  // namespace octet
