// Logits of a model for fixed rows of tokens, in few numbers: octet_verify.json of an export. Other
// programs repeat it (python -m octet.check_folder).
//
// Two rows of 16 tokens, token i of row r the id (7919 (16 r + i) + 13) mod vocab. Behind each
// token: ln of the sum of exp(logit), the eight highest logits, highest first, of equals the lowest
// id, and those of eight ids spread over the vocabulary, (k vocab) / 8 for k from 0 to 7. f32 on
// the device of `machine`, of 8-bit folders with inputs quantized as their configuration says.
#pragma once

#include <string>

#include "infer/inference.h"
#include "infer/model_source.h"

namespace octet {

inline constexpr const char* kVerifyFile = "octet_verify.json";

// Digest of a model folder that writes text; `what` is said of its weights ("bf16"). Throws
// Error{invalid_argument} for models of other kinds, Error{numerics} for a logit that is not
// finite.
std::string logits_digest(const ModelSource& source, const TextMachine& machine,
                          std::string_view what);

// True if a model's logits have such a digest: it reads and writes text, and nothing beside it.
bool has_logits_digest(const ModelSpec& spec);

}  // namespace octet
