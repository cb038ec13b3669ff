// Texts as encoders train on them: rows with the tokenizer's own tokens around a text.
#pragma once

#include "config/run_config.h"
#include "data/dataset.h"
#include "nn/model.h"
#include "text/tokenizer.h"
#include "train/run_inputs.h"

namespace octet {

// The text of a run whose loss hides tokens, as rows of it (data/masked_rows.h). Throws
// Error{invalid_argument} where keys ask for what such rows have not, Error{bad_data} for a
// tokenizer without a mask token.
Dataset hide_tokens(const Dataset& text, const RunConfig& config, const RunInputs& inputs,
                    const Tokenizer& tokenizer);

}  // namespace octet
