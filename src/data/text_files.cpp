#include "data/text_files.h"

#include <new>
#include <utility>

#include "base/error.h"
#include "base/few.h"
#include "base/input_limits.h"
#include "base/parse_text.h"
#include "data/byte_stream.h"
#include "text/unicode.h"

namespace octet {

bool is_readable_text(std::string_view bytes) {
  return bytes.find('\0') == bytes.npos && find_invalid_utf8(bytes) == bytes.npos;
}

std::string_view stripped(std::string_view text, std::string_view space) {
  const size_t first = text.find_first_not_of(space);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

std::string read_text_file(const Files& files, const std::string& path, uint64_t max_bytes) {
  auto file = files.open_stream(path, max_bytes);
  try {
    std::optional<std::string> text;
    if (file->size() <= max_bytes) text = read_unpacked(std::move(file), max_bytes);
    if (text) return *std::move(text);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::device, "[data] {}: its text does not fit into memory", path);
  }
  throw Error(ErrorCode::bad_data, "[data] {}: expected at most {} bytes of text, got more", path,
              max_bytes);
}

void add_files_under(const Files& files, const std::string& folder, FolderFiles& found) {
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.name.starts_with('.')) continue;
    const std::string path = join_path(folder, entry.name);
    if (entry.kind == EntryKind::file) found.paths.push_back(path);
    if (entry.kind == EntryKind::link) ++found.n_links;
    if (entry.kind == EntryKind::other) {
      found.problems.push_back(fmt::format("[data] '{}' is left out: it is no regular file", path));
    }
    if (entry.kind != EntryKind::directory) continue;
    try {
      add_files_under(files, path, found);
    } catch (const Error& error) {  // of the folder itself
      found.problems.push_back(fmt::format("[data] '{}' is left out: {}", path, error.what()));
    }
  }
}

void tell_unread(const std::string& folder, const FolderFiles& found,
                 const std::vector<UnreadFiles>& unread, const Log& log) {
  constexpr size_t kMaxNames = 3;
  for (size_t i = 0; i < found.problems.size(); ++i) {
    if (std::cmp_less(i, kMaxWarnings)) log.warning("{}", found.problems[i]);
  }
  if (std::cmp_greater(found.problems.size(), kMaxWarnings))
    log.warning("[data] {} more are left out",
                found.problems.size() - static_cast<size_t>(kMaxWarnings));
  for (const UnreadFiles& files : unread) {
    if (files.n == 0) continue;
    const std::string names =
        files.names.empty() ? "" : fmt::format(" ({})", first_few(files.names, kMaxNames));
    log.warning("[data] '{}': {} of {} files are not read, as they {}{}", folder, files.n,
                found.paths.size(), files.why, names);
  }
  if (found.n_links > 0)
    log.warning("[data] '{}': {} symbolic links are not followed", folder, found.n_links);
}

std::vector<std::string> read_text_lines(const Files& files, const std::string& path) {
  const std::string text = read_text_file(files, path, input_limits().max_unpacked_bytes);
  if (!is_readable_text(text))
    throw Error(ErrorCode::bad_data, "[data] {}: expected UTF-8 text", path);
  std::vector<std::string> lines;
  for (std::string_view rest = without_byte_order_mark(text); !rest.empty();)
    lines.emplace_back(take_line(rest));
  return lines;
}

FolderFiles files_under(const Files& files, const std::string& folder) {
  FolderFiles found;
  add_files_under(files, folder, found);
  return found;
}

}  // namespace octet
