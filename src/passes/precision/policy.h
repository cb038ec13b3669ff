// Formats of a linear's three operands, which the recipes of eight bits choose per linear.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/named_enum.h"
#include "ir/graph.h"

namespace octet {

// How the scale of a block follows from its largest magnitude: an f32 with which that becomes the
// largest code, or the power of two above.
enum class BlockScale : uint8_t { max, power };
constexpr auto value_names(BlockScale) {
  return name_list("max", "power");
}

// Data of `dtype`, with scales that make the largest magnitude `target`: one, or one for each
// block: a row or 1xG along the axis that a GEMM reduces (whichever of the two that is), or BxB.
// Scales of blocks are f32 or, with BlockScale::power, BF16; or E8M0 in either case. Where
// `quantized` is false the operand stays as the recipe types it, and what meets it in a GEMM is
// quantized and dequantized: for studies that quantize some roles alone.
struct OperandFormat {
  Dtype dtype = Dtype::e4m3;
  double target = 448;
  Granularity granularity = {.kind = Granularity::Kind::tensor};
  bool quantized = true;
  bool operator==(const OperandFormat&) const = default;
  bool is_block() const { return granularity.kind != Granularity::Kind::tensor; }
};

// Formats of input, weight and output gradient. Where `quantized` is false the linear stays as its
// recipe types it.
struct LinearFormats {
  bool quantized = true;
  OperandFormat x = {}, w = {}, dy = {};
  // Formats of x in wgrad and of w in dgrad, where these read them otherwise than the forward GEMM.
  std::optional<OperandFormat> backward_x = {}, backward_w = {};
  bool operator==(const LinearFormats&) const = default;
};

// How the sums of a linear's GEMMs of codes are accumulated, where a line of overrides says it.
enum class GemmSums : uint8_t { fast, promoted };
constexpr auto value_names(GemmSums) {
  return name_list("fast", "promoted");
}

// A pattern over names like "layers.3.down_proj" ('*' matches any run of characters), and what it
// sets.
struct LinearOverride {
  std::string pattern;
  std::optional<LinearFormats> formats = {};             // all of them; then:
  std::optional<OperandFormat> x = {}, w = {}, dy = {};  // x and w in the backward pass too
  std::optional<GemmSums> sums = {};                     // of all three GEMMs
};

// Scales of inputs and gradients: from this step's maximum, or from the last kAmaxHistory steps'.
// Weights' are then current: their maximum is known since the update. Or of weights too: a power of
// two that is measured every kRescalePeriod steps (periodic; stored: of the steps between, as it
// was left; power: each step, of functions that run forward alone), or 1 (none).
enum class Scaling : uint8_t { current, delayed, periodic, none, power, stored };
constexpr std::string_view enum_name(Scaling scaling) {
  constexpr std::string_view names[] = {"current", "delayed", "periodic",
                                        "none",    "power",   "stored"};
  return names[static_cast<int>(scaling)];
}
constexpr int enum_count(Scaling) {
  return 4;  // all that a run may ask for
}
// Scaling of a model trained with this: scales of its own that mean the same in every program.
constexpr Scaling forward_scaling(Scaling trained) {
  return trained == Scaling::delayed    ? Scaling::current
         : trained == Scaling::periodic ? Scaling::power
                                        : trained;
}
// True if scales are powers of two, so that quantized data keep the bits of what they were made of.
constexpr bool has_power_scales(Scaling scaling) {
  return scaling != Scaling::current && scaling != Scaling::delayed;
}

// Codes of weights: made where they are used, with a scale made there too (per_use) or kept from
// one update to the next (scale), or kept themselves (per_step: W and its transpose; w_only: W
// alone, transposed where it is used).
enum class WeightCopy : uint8_t { per_use, scale, per_step, w_only };
constexpr bool keeps_codes(WeightCopy copy) {
  return copy == WeightCopy::per_step || copy == WeightCopy::w_only;
}
constexpr auto value_names(WeightCopy) {
  return name_list("per_use", "scale", "per_step", "w_only");
}

// GEMMs of codes that may accumulate fast (GemmAttrs), where the run does not choose: forward ones,
// or of the gradients too.
enum class FastAccumulate : uint8_t { forward, all };

// Which do so, where the run chooses: none, the forward GEMMs, or all.
enum class Accumulation : uint8_t { promoted, forward, fast };
constexpr auto value_names(Accumulation) {
  return name_list("promoted", "forward", "fast");
}
// The most products of which a fast sum is still more exact than the 8 bits, where the run does not
// choose (docs/numerics.md).
inline constexpr int64_t kLongestFastSum = 16384;

// True if a GEMM of k products accumulates fast. By itself a run promotes weight gradients, whose k
// is the number of tokens, and sums that are longer than kLongestFastSum.
bool accumulates_fast(FastAccumulate recipe, std::optional<Accumulation> chosen, GemmRole role,
                      int64_t k);

// Elements of a saved activation that share a scale, unless told otherwise (COAT, section 5).
inline constexpr Granularity kGroupsOf16 = {Granularity::Kind::group, 16, Dtype::bf16};

// Values stored in groups for the backward pass, as norms and activations of the forward pass read
// them: as they are computed, or the groups.
enum class ForwardReads : uint8_t { unquantized, stored };
constexpr auto value_names(ForwardReads) {
  return name_list("unquantized", "stored");
}

// Which of attention's values the backward pass keeps in groups, as it does inputs of norms and
// activations: none (wide), queries, keys and values behind their rotation, or its output too.
enum class SavedAttention : uint8_t { wide, qkv, qkvo };
constexpr auto value_names(SavedAttention) {
  return name_list("wide", "qkv", "qkvo");
}

// Every so many attempted steps, from the step of this number on, periodic scales are measured.
inline constexpr int64_t kRescalePeriod = 10;
// Steps that delayed scaling looks back.
inline constexpr int64_t kAmaxHistory = 16;
// Rows of a transposed operand are padded with zero codes to a multiple of this: the reduction's
// length on Hopper.
inline constexpr int64_t kPadRows = 16;

bool matches_pattern(std::string_view pattern, std::string_view name);

// The format that `dtype` takes as input or weight, and as a gradient (HiF8: 15 and 224).
OperandFormat operand_format(Dtype dtype, bool gradient);

// By row, in groups of 1xG, or in blocks of BxB. Throws Error(invalid_argument) for other names.
OperandFormat block_format(Dtype dtype, std::string_view granularity, Dtype scales = Dtype::f32);

// The name of an operand that is not quantized.
inline constexpr std::string_view kNotQuantized = "none";

// "e4m3", "e4m3/tensor", "e4m3/row", "hif8/1x128", "e4m3/128x128", "none"; nothing where it is no
// such name.
std::optional<OperandFormat> operand_format_from_name(std::string_view name, bool gradient);
std::string operand_format_name(const OperandFormat& format);

// Formats after these overrides, in order, whatever their patterns: a line by role begins with what
// stands before it, of a linear that is not quantized with no operand that is.
LinearFormats apply_overrides(const LinearFormats& base,
                              const std::vector<LinearOverride>& overrides,
                              BlockScale block_scale = BlockScale::max);

// log2 of the RMS that a linear's input, weight and output gradient are predicted to have.
struct LinearRms {
  double x = 0, w = 0, dy = 0;
};

// The data of GEMM operands that match ("layers.3.down_proj.x", .w, .dy; .y of results that are
// stored in codes) times 2^log2, beside the scale that is predicted. As text "PATTERN=LOG2".
struct EdgeScale {
  std::string pattern;
  int log2 = 0;
};
inline constexpr int kMaxEdgeScale = 64;
// Nothing where the text is none, or leaves [-kMaxEdgeScale, kMaxEdgeScale].
std::optional<EdgeScale> edge_scale_from_text(std::string_view text);
// log2 of the last that matches; 0: of none.
int edge_scale(const std::vector<EdgeScale>& scales, std::string_view edge);

// log2 of the RMS at which codes of a normal are in the middle of the range where the format keeps
// its signal-to-noise ratio (scalify.md section 2: E4M3 2^-4 to 2^6).
int quantizer_centre(Dtype dtype);
// log2 of the scale with which data of this predicted RMS (log2) are there.
int predicted_scale(double rms, Dtype dtype);

// The largest f32 that does not overflow the format: 40,960 and above saturate in HiFloat8.
float largest_unsaturated(Dtype dtype);

// "layers.3.down_proj" of a gemm inside a layer, of all uses of a linear the same; empty outside.
std::string linear_name(const Node& node);
// A GEMM of a layer: of a linear, or of its gradients.
inline bool is_layer_gemm(const Node& node) {
  return node.op == OpCode::gemm && node.tag.layer >= 0;
}

// Throws Error(invalid_argument) where an override would silently change nothing: its pattern
// matches none of the graph's linears, or the recipe quantizes none.
void check_overrides(std::string_view recipe, const LinearFormats& formats, const Graph& graph,
                     const std::vector<LinearOverride>& overrides);

}  // namespace octet
