// octet embed: texts as vectors.
#pragma once

#include "cli/common.h"

namespace octet {

void add_embed_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
