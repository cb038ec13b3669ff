// One value of the configuration: from a YAML node, and to YAML text. Internal to src/config.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "base/input_limits.h"
#include "config/table.h"

namespace octet {

// The place of a value, for messages: "run.yaml:12" or "--set", and the key's path.
struct ConfigPlace {
  std::string where;
  std::string path;
};

// Throws ErrorCode::invalid_argument: "<where>: <path>: expected <expected>, got <got>".
[[noreturn]] void fail_expected(const ConfigPlace& place, const std::string& expected,
                                const std::string& got);

// One document within the limits. Throws ErrorCode::invalid_argument, "<name>:<line>: ...".
YAML::Node parse_yaml(const std::string& text, const std::string& name, const YamlLimits& limits);

// The text on one line: control characters become blanks.
std::string printable(std::string text);

// A node in words for messages: a scalar quoted and cut to one short line, "a list", "a map",
// "nothing".
std::string describe(const YAML::Node& node);

// Reads the row's value into its field of config; throws as fail_expected does.
void read_value(const ConfigRow& row, const YAML::Node& node, const ConfigPlace& place,
                RunConfig& config);
// One line of recipe.override: a recipe, or a map from roles to formats.
RecipeOverride read_override(const std::string& pattern, const YAML::Node& node,
                             const ConfigPlace& place);

// The field's value in YAML's flow style; read_value gives the same value back.
std::string value_text(const ConfigRow& row, const RunConfig& config);

}  // namespace octet
