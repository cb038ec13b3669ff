// Loss scaling: gradients are those of S loss, so that what is small in FP16 or HiFloat8 lives, and
// the update divides by S again. S is a power of two.
//
//   global     S halves on an overflow, and doubles after `growth_steps` steps without one
//   adaptive   the same, with a window of steps that changes: every third rise of S moves it up the
//              list kLossWindows, whatever lies between them, and three falls in a row move it
//              down; a rise ends a run of falls. Source: Luo et al. 2024, section 5.1
// An overflow is a gradient that is not finite, or a value that an 8-bit format could not hold but
// saturated (quantize_linears.h). That step changes no weight. S stays within kMinLossScale and
// kMaxLossScale; at the least an overflow is none of the scale's.
//
// All of it lasts as states of the graph, f32[]: "loss_scale:scale" and, what changes it,
// "loss_scale:window", "loss_scale:good_steps" (since S changed), "loss_scale:rises" (since the
// window last moved up) and "loss_scale:streak" (minus the falls in a row; in checkpoints that have
// no rises also rises in a row, which count for none). A scale and a window of 0 stand for the
// policy's first ones.
#pragma once

#include <array>
#include <string_view>

#include "base/named_enum.h"
#include "ir/builder.h"

namespace octet {

enum class LossScaling : uint8_t { none, global, adaptive };
constexpr auto value_names(LossScaling) {
  return name_list("none", "global", "adaptive");
}

inline constexpr std::array<double, 7> kLossWindows = {1, 20, 50, 100, 200, 500, 1000};
inline constexpr double kFirstLossWindow = 20;
inline constexpr int kWindowMoves = 3;  // rises, or falls in a row, that move the window
inline constexpr double kMinLossScale = 0x1p-24, kMaxLossScale = 0x1p48;
inline constexpr double kFirstGlobalLossScale = 0x1p16, kFirstAdaptiveLossScale = 0x1p32;

struct LossScalePolicy {
  LossScaling kind = LossScaling::none;
  double first = kFirstGlobalLossScale;  // a power of two
  int64_t growth_steps = 2000;           // of global
  explicit operator bool() const { return kind != LossScaling::none; }
  double first_window() const {
    return kind == LossScaling::adaptive ? kFirstLossWindow : static_cast<double>(growth_steps);
  }
};

// The owners of the states.
inline constexpr std::string_view kLossScaleValue = "scale", kLossScaleWindow = "window",
                                  kLossScaleGoodSteps = "good_steps", kLossScaleRises = "rises",
                                  kLossScaleStreak = "streak";

// S, f32[] (`real` in the Logical phase), from its state, which is made an input where it is none.
ValueId loss_scale(Builder& builder, const LossScalePolicy& policy);

// Appends the states' next values behind an update, whose flag `overflow` (a bool scalar) is.
void update_loss_scale(Builder& builder, const LossScalePolicy& policy, ValueId overflow);

}  // namespace octet
