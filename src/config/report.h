// The configuration as text: the resolved file, and the reference made from the key table.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/load.h"

namespace octet {

// A complete YAML file: every key of the table, less the shape keys that model.path decides.
// parse_config gives the same configuration back.
std::string resolved_yaml(const RunConfig& config);

// Every key of the table with its value as text, in the table's order.
using ConfigValues = std::vector<std::pair<std::string, std::string>>;  // key, value
ConfigValues config_values(const RunConfig& config);

// docs/configuration.md.
std::string configuration_markdown();

// The same for a terminal: one line per key with type, default and meaning.
std::string configuration_help();

}  // namespace octet
