// octet docs: reference pages made from the program's own tables.
#pragma once

#include "cli/common.h"

namespace octet {

void add_docs_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
