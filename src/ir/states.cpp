#include "ir/states.h"

#include <iterator>

#include "base/error.h"

namespace octet {
namespace {

using enum StateUse;

// Kept by checkpoints, and unchanged by a skipped step.
constexpr StateDef lasting(StateUse use, std::string_view name, std::string_view prefix,
                           StateOwner owner, MemoryRole role = MemoryRole::optimizer) {
  const bool cut = owner == StateOwner::parameter;
  return {.use = use,
          .name = name,
          .prefix = prefix,
          .owner = owner,
          .role = role,
          .sharding = cut ? StateSharding::with_parameter : StateSharding::agreed};
}

// Gathered over the micro-batches of one step.
constexpr StateDef within_step(StateUse use, std::string_view name, std::string_view prefix,
                               StateOwner owner) {
  StateDef def = lasting(use, name, prefix, owner, MemoryRole::gradients);
  def.lane = Lane::step;
  def.on_skip = OnSkip::cleared;
  def.in_checkpoint = false;
  return def;
}

constexpr StateDef from_parameters(StateUse use, std::string_view name, std::string_view prefix,
                                   StateOwner owner) {
  StateDef def = lasting(use, name, prefix, owner, MemoryRole::weight_copies);
  def.kind = InputKind::derived;
  def.on_skip = OnSkip::derived;
  def.in_checkpoint = false;
  return def;
}

// Of the text that functions are generating.
constexpr StateDef generated(StateUse use, std::string_view name, std::string_view prefix) {
  StateDef def = lasting(use, name, prefix, StateOwner::site, MemoryRole::activations);
  def.sharding = StateSharding::none;
  def.in_checkpoint = false;
  return def;
}

// `master` and `master_remainder` share a prefix: the dtype tells them apart.
constexpr StateOwner kParameter = StateOwner::parameter, kSite = StateOwner::site;
constexpr StateDef kStates[] = {
    {},
    lasting(master, "master", "master:", kParameter, MemoryRole::masters),
    lasting(master_remainder, "master_remainder", "master:", kParameter, MemoryRole::masters),
    lasting(moment1, "moment1", "adam_m:", kParameter),
    lasting(moment2, "moment2", "adam_v:", kParameter),
    lasting(moment1_meta, "moment1_meta", "adam_m_meta:", kParameter),
    lasting(moment2_meta, "moment2_meta", "adam_v_meta:", kParameter),
    within_step(accumulator, "accumulator", "accumulated:", kParameter),
    within_step(accumulated_history, "accumulated_history", "accumulated:amax_history:", kSite),
    within_step(accumulated_rescale, "accumulated_rescale", "accumulated:rescale_factor:", kSite),
    within_step(accumulated_flag, "accumulated_flag", "accumulated:quantizer_flag",
                StateOwner::function),
    lasting(amax_history, "amax_history", "amax_history:", kSite),
    lasting(rescale_factor, "rescale_factor", "rescale_factor:", kSite),
    lasting(fixed_scale, "fixed_scale", "fixed_scale:", kSite),
    lasting(loss_scale, "loss_scale", "loss_scale:", kSite),
    from_parameters(weight_quantized, "weight_quantized", "copy:", kParameter),
    from_parameters(weight_quantized_t, "weight_quantized_t", "copy_t:", kParameter),
    from_parameters(weight_scale, "weight_scale", "copy_scale:", kSite),
    generated(kv_cache, "kv_cache", "kv_cache:"),
};

constexpr bool states_in_order() {
  for (size_t i = 0; i < std::size(kStates); ++i) {
    if (kStates[i].use != static_cast<StateUse>(i)) return false;
  }
  return true;
}
static_assert(states_in_order());

constexpr std::string_view kGradient = "grad:", kNext = "next:", kNonfinite = "nonfinite:";

std::string joined(std::string_view prefix, std::string_view name) {
  return std::string(prefix).append(name);
}

std::optional<std::string> behind(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  return std::string(name.substr(prefix.size()));
}

}  // namespace

std::string_view enum_name(InputKind kind) {
  constexpr std::string_view names[] = {"parameter",   "state",    "batch",
                                        "step_scalar", "constant", "derived"};
  return names[static_cast<int>(kind)];
}

std::string_view enum_name(Lane lane) {
  constexpr std::string_view names[] = {"persistent", "step", "transient"};
  return names[static_cast<int>(lane)];
}

std::string_view enum_name(MemoryRole role) {
  constexpr std::string_view names[] = {"parameters", "masters",     "weight_copies", "gradients",
                                        "optimizer",  "activations", "workspace",     "other"};
  return names[static_cast<int>(role)];
}

const StateDef& state_def(StateUse use) {
  return kStates[static_cast<size_t>(use)];
}

std::string state_name(StateUse use, std::string_view owner) {
  CHECK(use != none);
  return joined(state_def(use).prefix, owner);
}

StateKey state_key(std::string_view name, Dtype dtype) {
  const StateDef* longest = nullptr;
  for (const StateDef& def : kStates) {
    const bool fits = def.use != none && name.starts_with(def.prefix) &&
                      (def.owner != StateOwner::function || name == def.prefix);
    if (fits && (longest == nullptr || def.prefix.size() > longest->prefix.size())) longest = &def;
  }
  if (longest == nullptr) return {};
  const bool remainder = longest->use == master && dtype == Dtype::i16;
  return {.use = remainder ? master_remainder : longest->use,
          .owner = std::string(name.substr(longest->prefix.size()))};
}

std::string gradient_name(std::string_view parameter) {
  return joined(kGradient, parameter);
}

std::string next_name(std::string_view input) {
  return joined(kNext, input);
}

std::string nonfinite_name(std::string_view parameter) {
  return joined(kNonfinite, parameter);
}

std::optional<std::string> gradient_parameter(std::string_view output) {
  return behind(kGradient, output);
}

std::optional<std::string> nonfinite_parameter(std::string_view output) {
  return behind(kNonfinite, output);
}

}  // namespace octet
