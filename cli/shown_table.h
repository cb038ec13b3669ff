// A table on a terminal: within its columns, figures with four digits. Elsewhere it is whole.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "cli/common.h"

namespace octet {

// Columns of the terminal that standard output is; nullopt where it is none.
std::optional<size_t> output_width();

// "31.4934674 +- 0.0440473302" as "31.49 +- 0.04405": numbers with a point, of more than four
// significant digits. Whole numbers, names and versions stay.
std::string with_short_figures(std::string_view text);

// The table in lines of at most `width` columns: where one row is longer, as several tables below
// each other, each with the first column; a cell that is longer than a line ends in "...".
std::string fitted_text(const Table& table, size_t width);

// Text as print_table() shows it: fitted, figures short, on a terminal without --wide; else whole.
std::string shown_text(const GlobalOptions& options, const Table& table);

}  // namespace octet
