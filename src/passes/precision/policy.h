// What the recipes of eight bits choose, per linear: the formats of its three operands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace octet {

// Codes of `dtype`, scaled per tensor so that the largest magnitude becomes `target`.
struct OperandFormat {
  Dtype dtype = Dtype::e4m3;
  double target = 448;
  bool operator==(const OperandFormat&) const = default;
};

// Formats of input, weight and output gradient. Where `quantized` is false the linear stays as its
// recipe types it.
struct LinearFormats {
  bool quantized = true;
  OperandFormat x, w, dy;
  bool operator==(const LinearFormats&) const = default;
};

// A pattern over names like "layers.3.down_proj" ('*' matches any run of characters), and what it
// sets.
struct LinearOverride {
  std::string pattern;
  std::optional<bool> quantized = {};
  std::optional<Dtype> x = {}, w = {}, dy = {};
};

// Scales of inputs and gradients: from this step's maximum, or from the last kAmaxHistory steps'.
// Weights' are always current: their maximum is known since the update.
enum class Scaling : uint8_t { current, delayed };
constexpr std::string_view enum_name(Scaling scaling) {
  return scaling == Scaling::current ? "current" : "delayed";
}
constexpr int enum_count(Scaling) {
  return 2;
}

// Codes of weights: made where they are used, with a scale made there too (per_use) or kept from
// one update to the next (scale), or kept themselves (per_step: W and its transpose; w_only: W
// alone, transposed where it is used).
enum class WeightCopy : uint8_t { per_use, scale, per_step, w_only };
constexpr bool keeps_codes(WeightCopy copy) {
  return copy == WeightCopy::per_step || copy == WeightCopy::w_only;
}
constexpr std::string_view enum_name(WeightCopy copy) {
  constexpr std::string_view names[] = {"per_use", "scale", "per_step", "w_only"};
  return names[static_cast<int>(copy)];
}
constexpr int enum_count(WeightCopy) {
  return 4;
}

// GEMMs of codes that may accumulate fast (GemmAttrs).
enum class FastAccumulate : uint8_t { forward, all };

// Steps that delayed scaling looks back.
inline constexpr int64_t kAmaxHistory = 16;
// Rows of a transposed operand are padded with zero codes to a multiple of this: the reduction's
// length on Hopper.
inline constexpr int64_t kPadRows = 16;

bool matches_pattern(std::string_view pattern, std::string_view name);

// The format that `dtype` takes as input or weight, and as a gradient (HiF8: 15 and 224).
OperandFormat operand_format(Dtype dtype, bool gradient);

// The formats of the linear with this name after every override that matches, in order.
LinearFormats resolve(const LinearFormats& base, const std::vector<LinearOverride>& overrides,
                      std::string_view name);

// log2 of the RMS that a linear's input, weight and output gradient are predicted to have.
struct LinearRms {
  double x = 0, w = 0, dy = 0;
};

// log2 of the RMS at which codes of a normal are in the middle of the range where the format keeps
// its signal-to-noise ratio (scalify.md section 2: E4M3 2^-4 to 2^6).
int quantizer_centre(Dtype dtype);

// "layers.3.down_proj" of a gemm inside a layer; empty outside.
std::string linear_name(const Node& node);

// Throws Error(invalid_argument) where an override would silently change nothing: its pattern
// matches none of the graph's linears, or the recipe quantizes none.
void check_overrides(std::string_view recipe, const LinearFormats& formats, const Graph& graph,
                     const std::vector<LinearOverride>& overrides);

}  // namespace octet
