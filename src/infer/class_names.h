// The names that a config.json gives to classes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace octet {

// Those of the n classes, by number: of id2label, whose keys are numbers as text, else of label2id.
// Empty where neither names each of them once.
std::vector<std::string> class_names(const Json& config, int64_t n);

// True where both name n classes, and otherwise.
bool class_names_differ(const Json& config);

}  // namespace octet
