#include "cli/recipe_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "library/program_files.h"

namespace octet {
namespace {

constexpr std::string_view kEnding = ".yaml";

// The first line, "# A model of ..."; empty where it is no comment.
std::string first_comment(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.starts_with("# ") ? line.substr(2) : "";
}

void add_files(const std::string& folder, std::vector<RecipeFile>& files) {
  const Files& system = posix_files();
  std::vector<std::string> folders;
  for (const DirectoryEntry& entry : system.list(folder)) {
    const std::string path = join_path(folder, entry.name);
    if (system.is_directory(path)) {
      folders.push_back(path);
    } else if (entry.name.ends_with(kEnding)) {
      files.push_back({entry.name.substr(0, entry.name.size() - kEnding.size()), path,
                       first_comment(system.read_text(path))});
    }
  }
  for (const std::string& inner : folders) add_files(inner, files);
}

bool is_file_name(const std::string& config) {
  const auto ends = [&](std::string_view ending) { return config.ends_with(ending); };
  return config.empty() || config.find('/') != std::string::npos || ends(".yaml") || ends(".yml") ||
         ends(".json");
}

// A file that is not there, beside others of which one may be meant.
[[noreturn]] void fail_no_file(const std::string& config) {
  const std::string folder = parent_path(config);
  std::vector<std::string> known;
  if (posix_files().is_directory(folder)) {
    for (const DirectoryEntry& entry : posix_files().list(folder)) {
      if (is_file_name(entry.name)) known.push_back(entry.name);
    }
  }
  const std::string nearest = nearest_name(file_name(config), known);
  throw Error(ErrorCode::invalid_argument,
              "expected a configuration file, got '{}', which is not there{}", config,
              nearest.empty() ? "" : "; the nearest is " + join_path(folder, nearest));
}

}  // namespace

std::vector<RecipeFile> recipe_files() {
  std::vector<RecipeFile> files;
  const std::string folder = beside_program({"recipes", "../share/octet/recipes"});
  if (!folder.empty()) add_files(folder, files);
  return files;
}

std::string config_path(const std::string& config) {
  if (is_file_name(config)) {
    if (!config.empty() && posix_files().kind(config) == EntryKind::none) fail_no_file(config);
    return config;
  }
  const EntryKind kind = posix_files().kind(config);
  if (kind != EntryKind::none && kind != EntryKind::directory) return config;
  std::vector<std::string> names;
  for (const RecipeFile& recipe : recipe_files()) {
    if (recipe.name == config) return recipe.path;
    names.push_back(recipe.name);
  }
  if (kind == EntryKind::directory) return config;  // whose reader says that it is one
  if (names.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "expected a configuration file, got '{}', which is none; recipes by name are not "
                "there beside this program",
                config);
  }
  throw Error(ErrorCode::invalid_argument,
              "expected a configuration file or the name of a recipe, got '{}'{} "
              "(`octet recipes` lists them)",
              config, nearest_hint("; the nearest is ", config, names));
}

}  // namespace octet
