// docs/models.md: the architectures and the keys of their config.json, made from the tables.
#pragma once

#include <string>

namespace octet {

std::string models_markdown();

}  // namespace octet
