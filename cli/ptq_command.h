// octet ptq: post-training quantization of a model.
#pragma once

#include "cli/common.h"

namespace octet {

void add_ptq_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
