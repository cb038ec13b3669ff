// docs/models.md: the architectures and the keys of their config.json, made from the tables.
#pragma once

#include <string>
#include <string_view>

namespace octet {

struct ModelDef;

std::string models_markdown();
// Columns of its table.
std::string_view positions_text(const ModelDef& model);
std::string_view mlp_text(const ModelDef& model);

}  // namespace octet
