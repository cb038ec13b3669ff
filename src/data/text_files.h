// Finding and reading text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/log.h"

namespace octet {

// No NUL and valid UTF-8 (no overlong forms, no surrogates).
bool is_readable_text(std::string_view bytes);
// Without white space, or the characters of `space`, at its ends.
std::string_view stripped(std::string_view text, std::string_view space = " \t\r\n\v\f");

// Without the byte order mark that a text of UTF-8 may begin with, which says nothing.
std::string_view without_byte_order_mark(std::string_view text);

// The bytes of a file or pipe, unpacked where they are packed (byte_stream.h). Throws
// Error{bad_data} where they are damaged, not packed though the name says so, or more than
// max_bytes, Error{device} where they do not fit into memory.
std::string read_text_file(const Files& files, const std::string& path, uint64_t max_bytes);

// The lines of a text, without their ends and its byte order mark. Throws as read_text_file(), and
// Error{bad_data} where it is not UTF-8 text.
std::vector<std::string> read_text_lines(const Files& files, const std::string& path);

struct FolderFiles {
  std::vector<std::string> paths;
  std::vector<std::string> problems;  // a line for each folder, FIFO or device that is left out
  int64_t n_links = 0;                // that are left out
};

// Tells how many files of a folder are not read, `why` and the first few of them where their names
// are known; and of its links, and of the problems.
struct UnreadFiles {
  int64_t n = 0;
  std::string why = {};  // "are no UTF-8 text"
  std::vector<std::string> names = {};
};
void tell_unread(const std::string& folder, const FolderFiles& found,
                 const std::vector<UnreadFiles>& unread, const Log& log);

// All regular files under a folder, depth first, names sorted at each level. Hidden names (".git")
// and symbolic links are left out, so that nothing comes twice. Throws Error{io} where the folder
// itself cannot be listed.
FolderFiles files_under(const Files& files, const std::string& folder);
void add_files_under(const Files& files, const std::string& folder, FolderFiles& found);

}  // namespace octet
