// Pairs of texts in two files of lines.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "data/text_records.h"

namespace octet {

// Line by line the lines of the i-th file of `sources` with those of the i-th of `targets`. Throws
// Error{bad_data} where the numbers of files, or of two files' lines, differ.
std::vector<TextRecord> read_line_pairs(const Files& files, const std::vector<std::string>& sources,
                                        const std::vector<std::string>& targets);

}  // namespace octet
