// COMPLETE, the marker of a whole checkpoint: the size of each file, and its XXH64 or, where
// several ranks wrote it, its PositionalHash.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"

namespace octet {

struct FileMark {
  uint64_t n_bytes = 0;
  uint64_t xxh64 = 0;
  std::optional<uint64_t> sum61 = {};  // instead of xxh64
};
using Marker = std::map<std::string, FileMark>;  // by file name

// All that a marker may name, so that it can neither ask for much work nor lead elsewhere.
inline constexpr std::string_view kMarkedFiles[] = {"manifest.json", "model.safetensors",
                                                    "optim.safetensors"};

std::string marker_to_json(const Marker& marker);
Marker parse_marker(const std::string& text, const std::string& where);  // Error{bad_data}
Marker read_marker(const Files& files, const std::string& path);

// Writes and syncs one file, and says what was written.
FileMark write_marked(Files& files, const std::string& path,
                      const std::function<void(FileWriter&)>& write);

// Throw Error{bad_data} where a file's size (or its hash, which reads it all) is not the mark's.
void verify_size(const Files& files, const std::string& path, const FileMark& mark);
void verify_hash(const Files& files, const std::string& path, const FileMark& mark);

}  // namespace octet
