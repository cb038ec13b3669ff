// What `octet data inspect` says of conversations.
#pragma once

#include <cstdint>

#include "base/ordered_json.h"
#include "data/chat_dataset.h"

namespace octet {

void write_chat(const ChatReport& chat, int64_t n_samples);
OrderedJson chat_json(const ChatReport& chat);

}  // namespace octet
