#include "data/text_files.h"

#include <new>

#include "base/error.h"
#include "data/byte_stream.h"

namespace octet {
namespace {

// The length of the UTF-8 sequence at the start of `bytes`, or 0.
size_t sequence_length(std::string_view bytes) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t n = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  uint32_t code = first & (0x7Fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const uint32_t least = n == 2 ? 0x80 : n == 3 ? 0x800 : 0x10000;
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  return code < least || code > 0x10FFFF || is_surrogate ? 0 : n;
}

}  // namespace

bool is_readable_text(std::string_view bytes) {
  if (bytes.find('\0') != bytes.npos) return false;
  while (!bytes.empty()) {
    const size_t n = sequence_length(bytes);
    if (n == 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

std::string read_text_file(const Files& files, const std::string& path, uint64_t max_bytes) {
  auto file = files.open_stream(path, max_bytes);
  const auto check = [&](uint64_t n_bytes) {
    if (n_bytes <= max_bytes) return;
    throw Error(ErrorCode::bad_data, "[data] {}: expected at most {} bytes of text, got more", path,
                max_bytes);
  };
  check(file->size());
  try {
    std::string text, block(1 << 18, '\0');
    text.reserve(file->size());
    const auto stream = open_stream(std::move(file));
    while (const size_t n = stream->read(block)) {
      check(text.size() + n);
      text.append(block, 0, n);
    }
    return text;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::device, "[data] {}: its text does not fit into memory", path);
  }
}

FolderFiles files_under(const Files& files, const std::string& folder) {
  FolderFiles found;
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.name.starts_with('.')) continue;
    const std::string path = join_path(folder, entry.name);
    if (entry.kind == EntryKind::file) found.paths.push_back(path);
    if (entry.kind == EntryKind::other) {
      found.problems.push_back(fmt::format("[data] '{}' is left out: it is no regular file", path));
    }
    if (entry.kind != EntryKind::directory) continue;
    try {
      const FolderFiles below = files_under(files, path);
      found.paths.insert(found.paths.end(), below.paths.begin(), below.paths.end());
      found.problems.insert(found.problems.end(), below.problems.begin(), below.problems.end());
    } catch (const Error& error) {
      found.problems.push_back(fmt::format("[data] '{}' is left out: {}", path, error.what()));
    }
  }
  return found;
}

}  // namespace octet
