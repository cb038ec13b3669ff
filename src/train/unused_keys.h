// Keys that somebody wrote and that change nothing in this run: told by name, with what they need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "config/load.h"
#include "data/dataset.h"
#include "nn/spec.h"

namespace octet {

// One of them: "recipe.tf32", its value, and what it lacks.
struct UnusedKey {
  std::string_view path;
  std::string value, needs;
};

// Keys whose value is another than the default of this run's recipe.
std::vector<UnusedKey> unused_keys(const LoadedConfig& loaded, const ModelSpec& spec);

// A warning for each of them, and for each weight of data.train with which no row of its files is
// read in all of the run's steps.
void tell_unused(const LoadedConfig& loaded, const ModelSpec& spec, const Dataset& data,
                 const Log& log);

}  // namespace octet
