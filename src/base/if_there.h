// Looks at files that other processes remove or make meanwhile: a look and the next one are two
// moments.
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/files.h"

namespace octet {

// f(); false or nothing where it fails and `path` is not there, or not any more.
template <typename F>
auto if_there(const Files& files, const std::string& path, const F& f) {
  using Result = std::invoke_result_t<F>;
  const bool was_there = files.entry_kind(path) != EntryKind::none;
  try {
    if constexpr (std::is_void_v<Result>) {
      f();
      return true;
    } else {
      return std::optional<Result>(f());
    }
  } catch (const Error&) {
    const bool is_there = files.entry_kind(path) != EntryKind::none;
    if (is_there && was_there) throw;
    if (is_there) return if_there(files, path, f);  // made between the failure and this look
  }
  if constexpr (std::is_void_v<Result>) {
    return false;
  } else {
    return std::optional<Result>();
  }
}

// The entries of a folder; none where it is not there.
inline std::vector<DirectoryEntry> list_if_there(const Files& files, const std::string& folder) {
  return if_there(files, folder,
                  [&] {
                    files.kind(folder);  // throws where a link leads nowhere
                    return files.list(folder);
                  })
      .value_or(std::vector<DirectoryEntry>());
}

// A file, a link or an empty folder that may be gone.
inline void remove_if_there(Files& files, const std::string& path) {
  if_there(files, path, [&] { files.remove(path); });
}

}  // namespace octet
