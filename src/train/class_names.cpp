#include "train/class_names.h"

#include <fmt/format.h>

#include "base/json.h"

namespace octet {

std::vector<std::string> names_of_model(const Files& files, const RunConfig& config,
                                        const ModelSpec& spec) {
  if (config.model.path.empty()) return {};
  const std::string path = join_path(config.model.path, "config.json");
  const Json json = parse_json(files.read_text(path), path);
  std::vector<std::string> names;
  while (json.contains("id2label")) {
    const Json& all = json["id2label"];
    const auto at = all.find(fmt::to_string(names.size()));
    if (at == all.end() || !at->is_string()) break;
    names.push_back(*at);
  }
  if (std::ssize(names) != spec.classes) names.clear();
  return names;
}

}  // namespace octet
