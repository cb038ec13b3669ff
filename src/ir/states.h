// States: what lasts from one call of a function to the next. What a state is for (its use) and
// whom it belongs to (its owner) say all the rest: its name in graphs and files, its memory, what
// a skipped step does to it, how it is sharded, and whether a checkpoint keeps it.
//
// This is the one place that composes or takes apart the names of states and graph outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/named_enum.h"
#include "formats/dtype.h"

namespace octet {

// derived: made from parameters, so that no file keeps it; it lasts like a state. statistic: what
// the forward pass of training gathers of its batches (running means); it has no gradient, and
// stands in files among the parameters.
enum class InputKind : uint8_t {
  parameter,
  state,
  batch,
  step_scalar,
  constant,
  derived,
  statistic
};
constexpr auto value_names(InputKind) {
  return name_list("parameter", "state", "batch", "step_scalar", "constant", "derived",
                   "statistic");
}

// Tensors that a model's files hold: what is trained, and what training gathers beside it.
constexpr bool is_model_tensor(InputKind kind) {
  return kind == InputKind::parameter || kind == InputKind::statistic;
}
// Inputs that keep their value from call to call; of these constants are never written over.
constexpr bool is_kept(InputKind kind) {
  return kind != InputKind::batch && kind != InputKind::step_scalar;
}

// One allocation of memory each (plan/plan.h).
enum class Arena : uint8_t { persistent, step, transient };
inline constexpr int kArenaCount = 3;
constexpr auto value_names(Arena) {
  return name_list("persistent", "step", "transient");
}

// Uses of memory, in reports.
enum class MemoryRole : uint8_t {
  parameters,
  masters,
  weight_copies,
  gradients,
  optimizer,
  activations,
  workspace,
  other
};
inline constexpr int kMemoryRoleCount = 8;
constexpr auto value_names(MemoryRole) {
  return name_list("parameters", "masters", "weight_copies", "gradients", "optimizer",
                   "activations", "workspace", "other");
}

enum class StateUse : uint8_t {
  none,                   // no state, or one that only its name describes
  master,                 // f32 weights beside narrower ones
  master_remainder,       // i16: (bits(weight) << 16) + remainder are the f32 master's bits
  moment1,                // AdamW's first moment
  moment2,                // AdamW's second moment
  moment1_meta,           // u32 a group of a quantized moment: scale and expansion
  moment2_meta,           //
  momentum,               // the running sum of gradients, of SGD and Muon
  momentum_meta,          // as of the moments
  accumulator,            // the sum of a parameter's gradients over micro-batches
  accumulated_history,    // an amax history's next value, over micro-batches
  accumulated_rescale,    // a rescale factor's next value, over micro-batches
  accumulated_flag,       // whether a quantizer met a value that is not finite
  accumulated_statistic,  // the sum of a statistic's next values over micro-batches
  amax_history,           // the last maxima of a delayed scale's tensor
  rescale_factor,         // a periodic scale as it was last measured (periodic_scale)
  fixed_scale,            // the scale of a moment that is stored with one, from the first step on
  loss_scale,             // the loss's scale, and what changes it (passes/loss_scale.h)
  weight_quantized,       // a weight's quantized data, kept between steps
  weight_quantized_t,     // the same, transposed
  weight_scale,           // the scale of a group of quantized weights
  kv_cache,               // the keys or the values of one layer, one row a position
};

// site: the quantizer of one tensor, or of a group of linears; function: one of a kind.
enum class StateOwner : uint8_t { none, parameter, site, function };
// Effect of a step that is skipped (a gradient that is not finite) on a state: it keeps its value,
// it moves on (each step), it lasts within a step alone, or it is derived anew.
enum class OnSkip : uint8_t { held, moves, within_step, derived };
// Several ranks: cut: each has its shard, as of the parameter; agreed: the largest of all ranks'
// next values; equal: made of values that are equal on all ranks; own: each rank's.
enum class OnRanks : uint8_t { cut, agreed, equal, own };

struct StateDef {
  StateUse use = StateUse::none;
  std::string_view name = "none";  // in manifests
  std::string_view prefix;         // of the name in graphs and files; the owner's name follows
  InputKind kind = InputKind::state;
  StateOwner owner = StateOwner::none;
  MemoryRole role = MemoryRole::optimizer;
  Arena arena = Arena::persistent;
  bool in_checkpoint = true;
  OnSkip on_skip = OnSkip::held;
  OnRanks ranks = OnRanks::own;
  StateUse gathered_in = StateUse::none;  // its largest next value over the step's micro-batches
  std::string_view shown = {};            // before the parameter's name, in telemetry
};
const StateDef& state_def(StateUse use);

struct StateKey {
  StateUse use = StateUse::none;
  std::string owner;
  bool operator==(const StateKey&) const = default;
};

std::string state_name(StateUse use, std::string_view owner);
// Use and owner that a name says; {none, ""} where it is no state's of the table.
StateKey state_key(std::string_view name, Dtype dtype);

// Outputs of a graph.
inline constexpr std::string_view kQuantizerFlag = "quantizer_flag";
std::string gradient_name(std::string_view parameter);
std::string next_name(std::string_view input);           // the next value of an input
std::string nonfinite_name(std::string_view parameter);  // whether its update was skipped
// The parameter of such a name; nothing where it is no such name.
std::optional<std::string> gradient_parameter(std::string_view output);
std::optional<std::string> nonfinite_parameter(std::string_view output);
inline bool is_gradient_name(std::string_view output) {
  return gradient_parameter(output).has_value();
}

}  // namespace octet
