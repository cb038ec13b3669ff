// Checks of a run's data before the first step, so that one that can learn nothing does not begin
// like a good one.
#pragma once

#include <span>

#include "base/log.h"
#include "data/row_source.h"
#include "data/token_stream.h"
#include "nn/spec.h"
#include "text/tokenizer.h"

namespace octet {

// Tells how many of the tokens that a tokenizer made of texts it does not know. Of a tokenizer that
// knows every text, and of token ids that no tokenizer made, nothing is told. Throws
// Error{bad_data} where all are unknown, or the texts have no token but the tokenizer's own around
// them.
void check_known(std::span<const int32_t> tokens, const Tokenizer& tokenizer, const Log& log);
// The same of a stream, of which no more than kKnownTokens are read, in pieces from all of it.
inline constexpr int64_t kKnownTokens = int64_t{1} << 20;
void check_known(const TokenStream& stream, const Tokenizer& tokenizer, const Log& log);

// Tells where all labels, or all of what the model reads, are the same: of at most kLookedAt
// samples, fewer where these are large, from all of the data.
inline constexpr int64_t kLookedAt = 4096;
void tell_constants(const RowSource& source, int64_t seq, const Log& log);

// Tells, of a model whose positions are counted from its padding's, how many of these samples hold
// that token inside, behind which transformers counts otherwise.
void tell_inner_padding(const RowSource& source, int64_t seq, const ModelSpec& spec,
                        const Log& log);

}  // namespace octet
