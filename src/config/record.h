// A checkpoint's record of a configuration, and the changes allowed to a run that goes on from it:
// the rules are the column OnResume of the table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/load.h"
#include "config/table.h"

namespace octet {

// Key -> value in YAML's flow style, of every key that is not OnResume::open.
using ConfigRecord = std::map<std::string, std::string>;

ConfigRecord config_record(const RunConfig& config);

// `base` with what the record says. Keys that this version does not know are left out. Throws
// Error{bad_data} naming `where` and the key for a value that is none.
RunConfig recorded_config(const ConfigRecord& record, const RunConfig& base,
                          const std::string& where);

struct ConfigChange {
  const ConfigRow* row = nullptr;
  std::string before, after;
};

// Keys that differ, in the table's order.
std::vector<ConfigChange> config_changes(const RunConfig& before, const RunConfig& after);

// Throws Error{invalid_argument} for the first change that its rule forbids: the key, what the
// checkpoint recorded, what came. `source` is LoadedConfig::source: "--set" names a key.
void check_changes(const std::vector<ConfigChange>& changes, const RunConfig& after,
                   const ConfigSources& source);

}  // namespace octet
