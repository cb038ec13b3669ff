// Reading a configuration: YAML file, then --set overrides, then resolution and checks across keys.
//
// All errors are ErrorCode::invalid_argument, one line: "run.yaml:12: model.hidden: expected an
// integer in [1, 1048576], got 'wide'". For an override the place is "--set". Unknown keys name the
// nearest known key; duplicate keys name both lines. The file may be a pipe, but no empty one.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_limits.h"
#include "config/run_config.h"

namespace octet {

// The source of each key's value in the table: "run.yaml:12", "--set", "default", or "derived".
using ConfigSources = std::map<std::string, std::string, std::less<>>;
bool is_set(const ConfigSources& sources, std::string_view key);  // by the command line
// Neither a default nor derived; so is a key whose source is not known.
bool is_written(const ConfigSources& sources, std::string_view key);

struct LoadedConfig {
  RunConfig config;  // resolved and checked
  ConfigSources source;
};

// sets are "a.b=c" with c in YAML's flow style ("data.train=[a.txt, b]", "recipe={base: coat}");
// the last one wins. "recipe.override.PATTERN=..." sets one line of the overrides.
LoadedConfig load_config(const std::string& file, const std::vector<std::string>& sets = {});
// The same from text; `name` stands for the file in messages.
LoadedConfig parse_config(const std::string& text, const std::string& name,
                          const std::vector<std::string>& sets = {},
                          const YamlLimits& limits = input_limits().yaml);

// Replaces values that depend on others by what they stand for (kv_heads 0, ffn 0, state_m auto,
// ...). Idempotent. Scaling, states and masters are those of the recipe; throws
// Error{invalid_argument} where there is none of this name.
void resolve(RunConfig& config);

}  // namespace octet
