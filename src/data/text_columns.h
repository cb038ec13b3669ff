// Which columns of a file, or keys of its records, the texts of data/text_records.h are in.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "data/text_records.h"

namespace octet {

// Columns of TextFields: whichever is there, and none.
inline constexpr const char *kAutoColumn = "auto", *kNoColumn = "none";

struct TextColumns {
  std::string first, second, label;  // second, label: "" where there is none
  std::vector<std::string> negatives = {};
  bool has(const std::string& name) const {
    return name == first || name == second || name == label ||
           std::ranges::find(negatives, name) != negatives.end();
  }
};

// Columns to read among `names`, a file's. Throws Error{bad_data} as read_text_records() does.
TextColumns find_columns(const std::string& path, const std::vector<std::string>& names,
                         const TextFields& fields, ReadLabels labels);

bool is_negative_column(const std::string& name);
bool is_label_column(const std::string& name);

// A label of pairs whose partners nobody named says which of them mean the same.
[[noreturn]] void fail_labelled_pairs(const std::string& path, const std::string& name);

}  // namespace octet
