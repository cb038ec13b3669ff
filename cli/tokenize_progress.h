// The progress of text on its way into tokens: a line on the terminal, painted again after each
// batch; nothing where standard error is no terminal, or with --quiet.
#pragma once

#include <functional>

#include "cli/common.h"
#include "data/token_cache.h"

namespace octet {

std::function<void(const TokenizeProgress&)> tokenize_painter(const GlobalOptions& options);

}  // namespace octet
