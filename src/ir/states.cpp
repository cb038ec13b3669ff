#include "ir/states.h"

#include <iterator>

#include "base/error.h"

namespace octet {
namespace {

using enum StateUse;

// A prefix that begins another's stands behind it. `master` and `master_remainder` share a prefix:
// the dtype tells them apart.
constexpr StateDef kStates[] = {
    {.use = none, .name = "none", .prefix = ""},
    {.use = master,
     .name = "master",
     .prefix = "master:",
     .owner = StateOwner::parameter,
     .role = MemoryRole::masters,
     .sharding = StateSharding::with_parameter},
    {.use = master_remainder,
     .name = "master_remainder",
     .prefix = "master:",
     .owner = StateOwner::parameter,
     .role = MemoryRole::masters,
     .sharding = StateSharding::with_parameter},
    {.use = moment1,
     .name = "moment1",
     .prefix = "adam_m:",
     .owner = StateOwner::parameter,
     .sharding = StateSharding::with_parameter},
    {.use = moment2,
     .name = "moment2",
     .prefix = "adam_v:",
     .owner = StateOwner::parameter,
     .sharding = StateSharding::with_parameter},
    {.use = moment1_meta,
     .name = "moment1_meta",
     .prefix = "adam_m_meta:",
     .owner = StateOwner::parameter,
     .sharding = StateSharding::with_parameter},
    {.use = moment2_meta,
     .name = "moment2_meta",
     .prefix = "adam_v_meta:",
     .owner = StateOwner::parameter,
     .sharding = StateSharding::with_parameter},
    {.use = accumulator,
     .name = "accumulator",
     .prefix = "accumulated:",
     .owner = StateOwner::parameter,
     .role = MemoryRole::gradients,
     .lane = Lane::step,
     .on_skip = OnSkip::cleared,
     .sharding = StateSharding::with_parameter,
     .in_checkpoint = false},
    {.use = accumulated_history,
     .name = "accumulated_history",
     .prefix = "accumulated:amax_history:",
     .owner = StateOwner::site,
     .role = MemoryRole::gradients,
     .lane = Lane::step,
     .on_skip = OnSkip::cleared,
     .sharding = StateSharding::agreed,
     .in_checkpoint = false},
    {.use = accumulated_flag,
     .name = "accumulated_flag",
     .prefix = "accumulated:quantizer_flag",
     .owner = StateOwner::function,
     .role = MemoryRole::gradients,
     .lane = Lane::step,
     .on_skip = OnSkip::cleared,
     .in_checkpoint = false},
    {.use = amax_history,
     .name = "amax_history",
     .prefix = "amax_history:",
     .owner = StateOwner::site,
     .sharding = StateSharding::agreed},
    {.use = weight_quantized,
     .name = "weight_quantized",
     .prefix = "copy:",
     .kind = InputKind::derived,
     .owner = StateOwner::parameter,
     .role = MemoryRole::weight_copies,
     .on_skip = OnSkip::derived,
     .sharding = StateSharding::with_parameter,
     .in_checkpoint = false},
    {.use = weight_quantized_t,
     .name = "weight_quantized_t",
     .prefix = "copy_t:",
     .kind = InputKind::derived,
     .owner = StateOwner::parameter,
     .role = MemoryRole::weight_copies,
     .on_skip = OnSkip::derived,
     .sharding = StateSharding::with_parameter,
     .in_checkpoint = false},
    {.use = weight_scale,
     .name = "weight_scale",
     .prefix = "copy_scale:",
     .kind = InputKind::derived,
     .owner = StateOwner::site,
     .role = MemoryRole::weight_copies,
     .on_skip = OnSkip::derived,
     .sharding = StateSharding::agreed,
     .in_checkpoint = false},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kStates); ++i) {
    if (kStates[i].use != static_cast<StateUse>(i)) return false;
  }
  return true;
}
static_assert(in_order());

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

bool is_gradient_name(std::string_view output) {
  return output.starts_with(kGradient);
}

std::optional<std::string> gradient_parameter(std::string_view output) {
  return behind(kGradient, output);
}

std::optional<std::string> nonfinite_parameter(std::string_view output) {
  return behind(kNonfinite, output);
}

}  // namespace octet
