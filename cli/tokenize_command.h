// octet tokenize: text to token ids and back, and text to shards.
#pragma once

#include "cli/common.h"

namespace octet {

void add_tokenize_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
