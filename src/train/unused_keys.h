// Keys that somebody wrote and that change nothing in this run: told by name, with what they need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "config/load.h"
#include "data/dataset.h"
#include "device/device.h"
#include "nn/spec.h"
#include "train/engine.h"

namespace octet {

// One of them: "recipe.tf32", its value, and what it lacks.
struct UnusedKey {
  std::string_view path;
  std::string value, needs;
};

enum class HasValidation : uint8_t { no, yes };

// Keys whose value is another than the default of this run's recipe.
std::vector<UnusedKey> unused_keys(const LoadedConfig& loaded, const ModelSpec& spec,
                                   HasValidation validation = HasValidation::yes);

// A warning for each of them, and for each weight of data.train with which no row of its files is
// read in all of the run's steps.
void tell_unused(const LoadedConfig& loaded, const ModelSpec& spec, const Dataset& data,
                 const Log& log);

// A line for each key that is not at its default and changes nothing on this device, or with the
// kernels of these plans.
void tell_unused_on(const Device& device, const TrainEngine& engine, const RunConfig& config,
                    const Log& log);

}  // namespace octet
