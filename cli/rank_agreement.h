// Facts that ranks, each a process of its own, must have in common before they begin.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "comm/group.h"

namespace octet {

using Facts = std::vector<std::pair<std::string, std::string>>;  // name, value

// This program's version and a checksum of its file.
std::pair<std::string, std::string> program_fact();

// Every rank calls these; where one differs from rank 0, it throws, and the others' next call on
// the group says so.

// Throws Error{invalid_argument}: the first fact that is another than rank 0's, and both values.
void expect_same(Group& group, const Facts& facts);

// Throws Error{io} where this rank does not see in the folder what rank 0, which makes the folder
// if it is missing, has just written there.
void expect_shared_folder(Group& group, Files& files, const std::string& folder);

}  // namespace octet
