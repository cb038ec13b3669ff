// Rows of named arrays in safetensors files: a row a sample, or several.
//
// Each file holds an array for each input that the data has to bring, by its name, and may hold
// those that follow from others (positions, key_ends) and "lengths", the tokens of each row without
// padding. The first extent counts rows (of an input a sample: samples), the same in all arrays of
// a file; then come the tokens of a row, where an item is a token, and what an item has. Other
// arrays are left alone.
//   indices: I32, I64, I16, U16, U32, I8, U8    numbers: F32, BF16, F16
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/row_source.h"

namespace octet {

struct ArrayRowsOptions {
  // Inputs that a run reads. Those in `made` follow from others where the files have none.
  std::vector<InputSpec> inputs = {};
  std::vector<std::string> made = {};
  int64_t seq = 0;  // tokens a row
  int64_t rows_per_sample = 1;
};

// Files one after the other. Headers, types, extents and all indices are checked here: they lie
// in [0, bound), or are kIgnoredLabel where that stands for padding; numbers are read when needed.
// Throws Error{bad_data}, "[data] PATH: ...", naming the first array that differs.
std::shared_ptr<const RowSource> array_rows(const Files& files,
                                            const std::vector<std::string>& paths,
                                            const ArrayRowsOptions& options);

}  // namespace octet
