// octet chat: what a model's chat template makes of a conversation.
#pragma once

#include "cli/common.h"

namespace octet {

void add_chat_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
