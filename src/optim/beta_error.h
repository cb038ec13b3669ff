// Which decays of AdamW's moments the update's f32 holds. The update takes b in f32, 1 - b and its
// bias correction 1 - b^t of the f64 (math/adamw.h): near 1 a moment fades otherwise than it grows.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace octet {

// The decays from here on are 1 in f32, and a moment would never move.
inline constexpr double kBetaLimit = 1 - 0x1p-25;

// Error that is worth a warning: a share of 1 - b.
inline constexpr double kMaxBetaError = 0.01;

// How much of 1 - b the rounding of b to f32 changes.
inline double beta_error(double beta) {
  const double rounded = 1 - static_cast<double>(static_cast<float>(beta));
  return std::abs(rounded - (1 - beta)) / (1 - beta);
}

inline std::string beta_warning(double beta) {
  return fmt::format("{} is {:.9g} in f32: the 1 - beta by which a moment fades is off by {:.1f} %",
                     beta, static_cast<double>(static_cast<float>(beta)), 100 * beta_error(beta));
}

}  // namespace octet
