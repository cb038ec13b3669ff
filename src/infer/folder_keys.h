// Keys of the JSON files that stand beside a config.json. Each is read here or elsewhere, or
// neutral: it may hold anything. A row of docs/results/neutral_keys.csv proves that
// (tools/neutral_keys.py).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace octet {

struct FolderKeys {
  std::string_view file;  // in a model folder
  std::span<const std::string_view> read, neutral;
};
std::span<const FolderKeys> folder_keys();

// Keys of these files that are neither, and hold more than null, false or nothing.
struct FolderKey {
  std::string_view file;
  std::string key;
  bool operator==(const FolderKey&) const = default;
};
std::vector<FolderKey> unknown_folder_keys(const Files& files, const std::string& folder);

}  // namespace octet
