// How long a training step takes on a card, predicted from its plan: the least time that the card's
// ceilings allow each launch (floor_seconds), over the share of it that kernels of its row reached
// where they were measured, and what a launch costs. Nothing runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "compile/program.h"
#include "runtime/profile.h"

namespace octet {

struct CardRates {
  std::string_view name;   // "NVIDIA H200"
  Ceilings ceilings;       // as `octet bench` measures them
  double launch_s = 0;     // between two kernels
  double other_share = 0;  // of rows that were not measured
};

// The one card that was measured (docs/results/h200/README.md): within 10 % of steps of Llamas from
// 85 M to 13 B parameters. What it says of other cards is an order, not a speed.
const CardRates& measured_card();

// One optimizer step of one rank, accumulation included: of bf16, FP8 and COAT's recipes.
double predicted_seconds(Program& program, const CardRates& card);

}  // namespace octet
