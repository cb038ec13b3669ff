#include "io/checkpoint_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/if_there.h"
#include "base/parse_text.h"
#include "base/temporary_file.h"
#include "io/manifest.h"

namespace octet {

std::optional<int64_t> step_of(std::string_view name) {
  if (name.substr(0, 5) != "step-") return std::nullopt;
  name.remove_prefix(5);
  if (name.ends_with(kSetAside)) name.remove_suffix(kSetAside.size());
  return name.size() < 6 ? std::nullopt : parse_number<int64_t>(name);
}

std::string wrong_name(const Files& files, const std::string& path) {
  const std::string manifest_path = join_path(path, kManifest);
  const std::optional<int64_t> named = step_of(file_name(path));
  try {
    const Manifest manifest = parse_manifest(files.read_text(manifest_path), manifest_path);
    if (!named || manifest.step == *named) return "";
    return fmt::format("[checkpoint] '{}': expected step {} as its name says, got step {}", path,
                       *named, manifest.step);
  } catch (const std::exception&) {
    return "";
  }
}

void remove_checkpoint(Files& files, const std::string& path) {
  for (const std::string_view name : {kComplete, kModel, kOptim, kManifest}) {
    const EntryKind kind = files.entry_kind(join_path(path, name));
    if (kind == EntryKind::file || kind == EntryKind::link)
      remove_if_there(files, join_path(path, name));
  }
  if_there(files, path, [&] {
    remove_left_overs(files, path, kComplete);
    if (files.list(path).empty()) files.remove(path);
  });
}

bool holds_part_of_checkpoint(const Files& files, const std::string& path) {
  if (!files.is_directory(path)) return false;
  const auto entries = if_there(files, path, [&] { return files.list(path); });
  if (!entries) return false;
  if (entries->empty()) return true;
  const std::string_view names[] = {kComplete, kModel, kOptim, kManifest};
  return std::ranges::any_of(names, [&](std::string_view name) {
    return files.entry_kind(join_path(path, name)) != EntryKind::none;
  });
}

bool is_left_over_save(std::string_view name) {
  if (!name.ends_with(kTemporary)) return false;
  const std::string_view step = name.substr(0, name.find('.'));
  if (!step_of(step)) return false;
  return name.size() == step.size() + kTemporary.size() || is_left_over(name, step);
}

}  // namespace octet
