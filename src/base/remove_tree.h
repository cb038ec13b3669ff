// Removes a folder of files, links and folders of one's own making.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace octet {

// Links are removed, not followed.
inline void remove_tree(Files& files, const std::string& folder) {
  for (const DirectoryEntry& entry : files.list(folder)) {
    const std::string path = join_path(folder, entry.name);
    if (files.entry_kind(path) == EntryKind::directory) {
      remove_tree(files, path);
    } else {
      files.remove(path);
    }
  }
  files.remove(folder);
}

// A new folder that is gone behind, as far as that is possible. Throws where the name is taken.
class TemporaryTree {
 public:
  TemporaryTree(Files& files, std::string folder) : files_(files), folder_(std::move(folder)) {
    files.create_directory(folder_);
  }
  ~TemporaryTree() {
    try {
      remove_tree(files_, folder_);
    } catch (const Error&) {  // its name says what it is
    }
  }
  TemporaryTree(const TemporaryTree&) = delete;
  TemporaryTree& operator=(const TemporaryTree&) = delete;

  const std::string& path() const { return folder_; }

 private:
  Files& files_;
  std::string folder_;
};

}  // namespace octet
