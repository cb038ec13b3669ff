// Records of preference data: two answers to one prompt, as conversations of data/chat_records.h.
//
//   `chosen` and `rejected` stand beside a prompt: <prompt>, `question`, <instruction> with
//   <input>, or the messages under <messages> or <conversations>. Each is a text, a message, or a
//   list of messages. Or each is a conversation of its own, whose first messages, which both have,
//   are the prompt; a prompt beside them is not read.
// Beside all, what stands beside conversations: `system`, `tools`, `history`, ....
#pragma once

#include <string_view>

#include "data/chat_records.h"

namespace octet {

// In both the assistant's messages of the prompt are not trained.
struct PreferenceRecord {
  ChatRecord chosen, rejected;
};

// Throws BadRecord for what is no such record.
PreferenceRecord read_preference_record(std::string_view json, const ChatFields& fields);

}  // namespace octet
