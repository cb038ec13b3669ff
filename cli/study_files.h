// Files that studies leave behind: CSV files, SVG figures, and one page of them all.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "cli/common.h"
#include "study/study.h"

namespace octet {

// NAME.csv and NAME.svg of everything, and study.json, into a folder that is made where it is
// missing. Files of an earlier study of the same title there are replaced; of others, and of links,
// none is: that is an Error{invalid_argument} before anything is written.
void write_study(Files& files, const Study& study, const std::string& folder);

// A study's table for readers: figures with at most four digits, whole numbers as they are.
Table short_table(const std::vector<std::string>& columns,
                  const std::vector<std::vector<std::string>>& rows);

// index.html in `out`, which holds all it shows, from folders that write_study filled. Throws
// Error{bad_data} where one is none, Error{invalid_argument} where another index.html is there.
void write_study_page(Files& files, const std::vector<std::string>& folders,
                      const std::string& out);

}  // namespace octet
