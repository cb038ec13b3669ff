// Data that is token ids already, and so needs no tokenizer.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/files.h"
#include "text/tokenizer.h"

namespace octet {

// Whether each path is a token shard, or a folder without a file that a tokenizer would read.
bool are_token_shards(const Files& files, std::span<const std::string> paths);

// In the place of a tokenizer: `vocab` tokens, none that ends a document. Text, either way, is
// Error{invalid_argument}.
std::unique_ptr<Tokenizer> no_tokenizer(int64_t vocab);

}  // namespace octet
