// Folders where a command may put files under names of its own choice. One rule of all: a file that
// is there and that the command did not write is never replaced, and no link is followed.
#pragma once

#include <string>
#include <string_view>

#include "base/files.h"

namespace octet {

// Throws Error{invalid_argument} where `folder`, which the user named by `option`, is there and is
// the root, a folder that the current one lies in, or the folder of a model or of a run.
void check_output_folder(const Files& files, std::string_view option, const std::string& folder);

// The part of it that holds for runs as well.
void check_not_above(const Files& files, std::string_view option, const std::string& folder);

// The same rule for a file that the user named, in a folder that is there: it must be free, empty,
// what this command wrote before, which begins with `begin`, or no regular file but a stream.
// Error{invalid_argument} else, and for "-".
void check_output_file(const Files& files, std::string_view option, const std::string& path,
                       std::string_view begin);

// Throws Error{invalid_argument}: `path` is there, and the command did not write it.
[[noreturn]] void throw_not_replaced(std::string_view option, const std::string& path);

}  // namespace octet
