// Rows of tokens in memory, each with what a loss reads of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/inputs.h"
#include "data/row_source.h"

namespace octet {

struct TokenRowsOptions {
  int64_t rows_per_sample = 1;
  int32_t padding = 0;                        // behind a row's tokens
  std::optional<InputSpec> token_types = {};  // where the model reads them
};

// One row after the other; a batch has at least as many tokens a row as the longest.
struct TokenRows {
  std::vector<int32_t> tokens = {};
  std::vector<int32_t> types = {};       // of each token; empty where nobody reads them
  std::vector<int64_t> ends = {};        // of each row, in tokens
  std::vector<HostTensor> of_rows = {};  // n_inner() values a row, of inputs of Per::row

  int64_t n_rows() const { return static_cast<int64_t>(ends.size()); }
  void add_row(std::span<const int32_t> row_tokens, std::span<const int32_t> row_types);
};

// Writes tokens into a row of a batch of `seq` tokens a row, and padding behind them.
void put_row(std::span<const int32_t> tokens, int32_t padding, int64_t row, int64_t seq,
             std::vector<int32_t>& to);

// Throws Error{bad_data} without a whole sample. CHECKs that everything has the number of rows.
std::shared_ptr<const RowSource> token_rows(TokenRows rows, const TokenRowsOptions& options);

}  // namespace octet
