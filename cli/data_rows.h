// `octet data inspect` of arrays and pictures.
#pragma once

#include "cli/common.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "text/tokenizer.h"

namespace octet {

// How many samples there are, which arrays each has, and the first `n` of the training data as an
// evaluation reads them: integers as they are, numbers by their mean and extremes. Rows of tokens
// and of labels, one a token, are also shown as the text that `tokenizer`, if any, makes of them,
// with what is trained.
void write_row_data(const Dataset& data, const RunConfig& config, int64_t n,
                    const Tokenizer* tokenizer, const GlobalOptions& options);

}  // namespace octet
