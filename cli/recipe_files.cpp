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

std::string stem(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

// A file that is not there, beside others of which one may be meant: by what is before the ending.
[[noreturn]] void fail_no_file(const std::string& config) {
  const size_t name_at = config.rfind('/') + 1;  // 0 without a folder
  const std::string folder = parent_path(config);
  std::vector<std::string> names, stems;
  if (posix_files().is_directory(folder)) {
    for (const DirectoryEntry& entry : posix_files().list(folder)) {
      if (!is_file_name(entry.name)) continue;
      names.push_back(entry.name);
      stems.push_back(stem(entry.name));
    }
  }
  const std::string nearest = nearest_name(stem(config.substr(name_at)), stems);
  const auto at = std::ranges::find(stems, nearest) - stems.begin();
  const std::string hint = nearest.empty() ? ""
                                           : "; the nearest is " + config.substr(0, name_at) +
                                                 names[static_cast<size_t>(at)];
  throw Error(ErrorCode::invalid_argument,
              "expected a configuration file, got '{}', which is not there{}", config, hint);
}

// A run and a model are folders that other flags take.
[[noreturn]] void fail_folder(const std::string& folder) {
  const Files& files = posix_files();
  const std::string recorded = join_path(folder, "config.yaml");
  const std::string hint = files.exists(recorded) ? ": a run's is " + recorded
                           : files.exists(join_path(folder, "config.json"))
                               ? ": --model takes the folder of a model"
                               : "";
  throw Error(ErrorCode::invalid_argument,
              "expected a configuration file or the name of a recipe, got the folder '{}'{}",
              folder, hint);
}

}  // namespace

std::vector<RecipeFile> recipe_files() {
  std::vector<RecipeFile> files;
  const std::string folder = beside_program({"recipes", "../share/octet/recipes"});
  if (!folder.empty()) add_files(folder, files);
  return files;
}

std::string config_path(const std::string& config) {
  const EntryKind kind = config.empty() ? EntryKind::none : posix_files().kind(config);
  if (is_file_name(config)) {
    if (!config.empty() && kind == EntryKind::none) fail_no_file(config);
    if (kind == EntryKind::directory) fail_folder(config);
    return config;
  }
  if (kind != EntryKind::none && kind != EntryKind::directory) return config;
  std::vector<std::string> names;
  for (const RecipeFile& recipe : recipe_files()) {
    if (recipe.name == config) return recipe.path;
    names.push_back(recipe.name);
  }
  if (kind == EntryKind::directory) fail_folder(config);
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
