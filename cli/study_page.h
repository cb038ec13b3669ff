// What studies leave behind: CSV files, figures that stand alone, and one page of them all.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "study/study.h"

namespace octet {

// With title, axes, units and legend; eight colours that colour-blind readers tell apart, and
// dashes.
std::string figure_svg(const Figure& figure);
std::string csv_text(const Sheet& sheet);

// NAME.csv and NAME.svg of everything, and study.json, into a folder that is made where it is
// missing; files of the same names are replaced.
void write_study(Files& files, const Study& study, const std::string& folder);

// index.html in `out`, which holds all it shows, from folders that write_study filled. Throws
// Error{bad_data} where one is none.
void write_study_page(Files& files, const std::vector<std::string>& folders,
                      const std::string& out);

}  // namespace octet
