// Reads the text that print() writes. Values may be numbered in any order; each must be defined
// before its use.
//
// Throws Error(invalid_argument, "file:line:column: expected ..., got ...") at the first mistake.
// Types are read, not inferred: run verify() on the result. Attributes that are left out keep their
// defaults; "#" starts a comment.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace octet {

Graph parse_graph(std::string_view text, const std::string& file = "graph");

}  // namespace octet
