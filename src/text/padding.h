// What rows are filled up with, and what texts that are too long lose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files.h"
#include "text/encode_texts.h"
#include "text/tokenizer.h"

namespace octet {

// The one that tokenizer_config.json or special_tokens_map.json calls pad_token, else that of
// `padding` in tokenizer.json, else a special token [PAD], <pad>, <|pad|> or <|padding|>; of a GGUF
// file the one of its key, else one of these texts. `path` as make_tokenizer() has it.
std::optional<int32_t> padding_id(const Files& files, const std::string& path,
                                  const Tokenizer& tokenizer);

// As truncation_side of tokenizer_config.json says, else the direction of `truncation` in
// tokenizer.json. Throws Error{bad_data} for other words than left and right.
CutSide cut_side(const Files& files, const std::string& path);

}  // namespace octet
