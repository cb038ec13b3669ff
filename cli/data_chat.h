// What `octet data inspect` says of conversations.
#pragma once

#include <cstddef>

#include "base/ordered_json.h"
#include "data/chat_dataset.h"

namespace octet {

void write_chat(const ChatReport& chat, size_t n_samples);
OrderedJson chat_json(const ChatReport& chat);

}  // namespace octet
