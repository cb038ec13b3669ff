// The tokens that end a text of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "text/tokenizer.h"

namespace octet {

// eos_token_id of the folder's generation_config.json (an id or a list), where it says none that of
// its config.json; and the tokenizer's end of a text and beginning of the next. Without repetition.
// Throws Error{bad_data} where a file is no JSON object or an id is none.
std::vector<int32_t> stop_tokens(const Files& files, const std::string& folder,
                                 const Tokenizer& tokenizer);

}  // namespace octet
