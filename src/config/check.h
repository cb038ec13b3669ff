// Checks across keys. Internal to src/config.
#pragma once

#include <string>

#include "config/load.h"

namespace octet {

// Contradictions between keys as they were written, before resolve(): model.path beside shape keys,
// shuffle against sampling. `name` stands for the file where a key has its default.
void check_written(const LoadedConfig& loaded, const std::string& name);
// Relations between resolved values: kv_heads divide heads, warmup within steps, ...
void check_resolved(const LoadedConfig& loaded, const std::string& name);

}  // namespace octet
