// Rows of data: what a training step and an evaluation read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/integer.h"
#include "data/inputs.h"

namespace octet {

// Elements of an array that are not ignored, by its name; "rows" and "samples" are counted besides.
using ItemCounts = std::map<std::string, int64_t, std::less<>>;

struct RowCounts {
  ItemCounts items = {};
  bool has_tokens = true;       // false: pictures, which are counted in their place
  int64_t n_tokens = 0;         // without padding
  int64_t n_padded_tokens = 0;  // with padding: what is computed
  int64_t n_labels() const { return count_of(items, "labels"); }
  static int64_t count_of(const ItemCounts& items, std::string_view name) {
    const auto at = items.find(name);
    return at == items.end() ? 0 : at->second;
  }
};

// The position of a loader and what it is a position in, for a checkpoint.
using LoaderState = std::map<std::string, std::string>;

// Rows of an evaluation: the same for every run.
class EvalRows {
 public:
  virtual ~EvalRows() = default;
  virtual int64_t n_rows() const = 0;
  virtual int64_t rows_per_sample() const { return 1; }  // that a batch holds all of
  // So many rows, or as many more as end a sample.
  int64_t whole_samples(int64_t rows) const {
    return ceil_div(rows, rows_per_sample()) * rows_per_sample();
  }
  // Rows after the last one repeat others, all labels ignored (filled_row). Of rows of several
  // lengths a batch has one of them.
  virtual Batch at(int64_t first_row, int64_t batch) const = 0;
};

// A text batch: tokens 0, all labels ignored; where it tells doc_starts, each row is one document.
Batch empty_batch(int64_t batch, int64_t seq, bool tells_starts = false);

// Which row a batch that begins with row `first_row` of `n_rows` has as row `row`: one after the
// last repeats a row of the same batch, or, where it has none, of the first ones, so that no
// maximum over the batch is of other data. Its labels are masked by mask_row.
int64_t filled_row(int64_t row, int64_t first_row, int64_t n_rows);
void mask_row(Batch& batch, int64_t row);

}  // namespace octet
