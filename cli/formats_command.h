// octet formats list | table | encode | decode | quantize | dequantize: the number formats on raw
// little-endian standard input and output.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_formats_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
