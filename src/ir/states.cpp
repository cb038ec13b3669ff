#include "ir/states.h"

#include <iterator>

#include "base/error.h"

namespace octet {
namespace {

using enum StateUse;

// State of an optimizer: a shard a rank.
constexpr StateDef of_update(StateUse use, std::string_view name, std::string_view prefix,
                             std::string_view shown = {}) {
  return {.use = use,
          .name = name,
          .prefix = prefix,
          .owner = StateOwner::parameter,
          .ranks = OnRanks::cut,
          .shown = shown};
}
constexpr StateDef of_master(StateUse use, std::string_view name) {
  StateDef def = of_update(use, name, "master:");
  def.role = MemoryRole::masters;
  return def;
}

constexpr StateDef of_site(StateUse use, std::string_view name, std::string_view prefix,
                           OnRanks ranks, StateUse gathered_in = none) {
  return {.use = use,
          .name = name,
          .prefix = prefix,
          .owner = StateOwner::site,
          .ranks = ranks,
          .gathered_in = gathered_in};
}

// Gathered over the micro-batches of one step.
constexpr StateDef within_step(StateUse use, std::string_view name, std::string_view prefix,
                               StateOwner owner) {
  return {.use = use,
          .name = name,
          .prefix = prefix,
          .owner = owner,
          .role = MemoryRole::gradients,
          .arena = Arena::step,
          .in_checkpoint = false,
          .on_skip = OnSkip::within_step,
          .ranks = owner == StateOwner::parameter ? OnRanks::cut : OnRanks::own};
}

constexpr StateDef from_parameters(StateUse use, std::string_view name, std::string_view prefix,
                                   StateOwner owner) {
  return {.use = use,
          .name = name,
          .prefix = prefix,
          .kind = InputKind::derived,
          .owner = owner,
          .role = MemoryRole::weight_copies,
          .in_checkpoint = false,
          .on_skip = OnSkip::derived};
}

// Counted and moved each step.
constexpr StateDef moving(StateDef def) {
  def.on_skip = OnSkip::moves;
  return def;
}
// State of the text that functions are generating.
constexpr StateDef generated(StateDef def) {
  def.role = MemoryRole::activations;
  def.in_checkpoint = false;
  return def;
}

// `master` and `master_remainder` share a prefix: the dtype tells them apart.
constexpr StateOwner kParameter = StateOwner::parameter, kSite = StateOwner::site;
constexpr StateDef kStates[] = {
    {},
    of_master(master, "master"),
    of_master(master_remainder, "master_remainder"),
    of_update(moment1, "moment1", "adam_m:", "m:"),
    of_update(moment2, "moment2", "adam_v:", "v:"),
    of_update(moment1_meta, "moment1_meta", "adam_m_meta:"),
    of_update(moment2_meta, "moment2_meta", "adam_v_meta:"),
    of_update(momentum, "momentum", "momentum:", "momentum:"),
    of_update(momentum_meta, "momentum_meta", "momentum_meta:"),
    within_step(accumulator, "accumulator", "accumulated:", kParameter),
    within_step(accumulated_history, "accumulated_history", "accumulated:amax_history:", kSite),
    within_step(accumulated_rescale, "accumulated_rescale", "accumulated:rescale_factor:", kSite),
    within_step(accumulated_flag, "accumulated_flag", "accumulated:quantizer_flag",
                StateOwner::function),
    within_step(accumulated_statistic, "accumulated_statistic", "accumulated:statistic:", kSite),
    of_site(amax_history, "amax_history", "amax_history:", OnRanks::agreed, accumulated_history),
    of_site(rescale_factor, "rescale_factor", "rescale_factor:", OnRanks::agreed,
            accumulated_rescale),
    of_site(fixed_scale, "fixed_scale", "fixed_scale:", OnRanks::equal),
    moving(of_site(loss_scale, "loss_scale", "loss_scale:", OnRanks::equal)),
    from_parameters(weight_quantized, "weight_quantized", "copy:", kParameter),
    from_parameters(weight_quantized_t, "weight_quantized_t", "copy_t:", kParameter),
    from_parameters(weight_scale, "weight_scale", "copy_scale:", kSite),
    generated(of_site(kv_cache, "kv_cache", "kv_cache:", OnRanks::own)),
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
