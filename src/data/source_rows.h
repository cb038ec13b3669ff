// Pairs of a source and a target as rows of a model that translates: the target behind the token
// that it begins with, its tokens as labels, and the source beside it, padded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/inputs.h"
#include "data/row_source.h"

namespace octet {

struct SourceRowsOptions {
  InputSpec source, length, labels;  // as the model and its loss declare them
  int32_t start = 0;                 // the first token of each target, which is no label
  int32_t padding = 0;               // behind a row's tokens, of both
};

// Writes a pair into a row of a batch that has these arrays.
void write_pair(std::span<const int32_t> source, std::span<const int32_t> target,
                const SourceRowsOptions& options, int64_t row, Batch& to);

// One pair after the other; neither side is empty, and no source longer than its input.
struct SourceRows {
  std::vector<int32_t> sources = {}, targets = {};          // targets: with what ends them
  std::vector<int64_t> source_ends = {}, target_ends = {};  // of each pair, in tokens

  int64_t n() const { return static_cast<int64_t>(source_ends.size()); }
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
};

// Samples write "tokens" (start, t1, ..., t[n-1]), labels (t1, ..., tn), the source and its length.
// A batch has at least as many tokens a row as the longest target. Throws Error{bad_data} without a
// pair.
std::shared_ptr<const RowSource> source_rows(SourceRows rows, const SourceRowsOptions& options);

}  // namespace octet
