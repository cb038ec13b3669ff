// The configuration as text: the resolved file, the printed table, and the reference made from the
// key table.
#pragma once

#include <string>

#include "config/load.h"

namespace octet {

// A complete YAML file: every key of the table, less the shape keys beside model.path. parse_config
// gives the same configuration back.
std::string resolved_yaml(const RunConfig& config);

// One line per key: key, value, where the value came from.
std::string config_table(const LoadedConfig& loaded);

// docs/configuration.md.
std::string configuration_markdown();

// The same for a terminal: one line per key with type, default and meaning.
std::string configuration_help();

}  // namespace octet
