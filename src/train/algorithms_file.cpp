#include "train/algorithms_file.h"

#include "base/error.h"
#include "base/json.h"

namespace octet {
namespace {

constexpr std::string_view kFormat = "octet-algorithms";

AutotuneCache parse_choices(const std::string& text, const std::string& path) {
  const Json root = parse_json(text, path);
  const JsonObject json(root, path);
  if (json.string("format") != kFormat || !json.at("algorithms").is_array()) {
    throw Error(ErrorCode::bad_data, "[algorithms] {}: expected a list of format {}, got '{}'",
                path, kFormat, json.string("format"));
  }
  AutotuneCache choices{.machine = json.string("machine")};
  for (const Json& item : json.at("algorithms")) {
    const JsonObject one(item, path);
    choices.choices.push_back({.problem = one.string("problem"),
                               .choice = one.string("choice"),
                               .code = one.string("code"),
                               .workspace_bytes = one.integer("workspace_bytes"),
                               .ms = one.number("ms")});
  }
  return choices;
}

}  // namespace

void write_autotune_cache(Files& files, const std::string& path, const Catalogue& catalogue) {
  const AutotuneCache cache = catalogue.autotune_cache();
  if (cache.choices.empty()) return;
  Json list = Json::array();
  for (const AutotunedChoice& choice : cache.choices) {
    list.push_back({{"problem", choice.problem},
                    {"choice", choice.choice},
                    {"code", choice.code},
                    {"workspace_bytes", choice.workspace_bytes},
                    {"ms", choice.ms}});
  }
  const Json json = {{"format", kFormat}, {"machine", cache.machine}, {"algorithms", list}};
  write_atomically(files, path, json.dump(1) + "\n");
}

std::string load_autotune_cache(const Files& files, const std::string& path, Catalogue& catalogue) {
  const std::string machine = catalogue.autotune_cache().machine;
  if (machine.empty() || !files.exists(path)) return "";
  const AutotuneCache recorded = parse_choices(files.read_text(path), path);
  if (recorded.machine != machine) {
    return fmt::format(
        "{}: expected algorithms for {}, got {}: chosen anew, sums may have other last bits", path,
        machine, recorded.machine);
  }
  catalogue.use_autotune_cache(recorded.choices);
  return "";
}

}  // namespace octet
