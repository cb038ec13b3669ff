// Keys of a conversation that a template makes nothing of: what it renders is the same without
// them. Internal to src/data.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "data/chat_answers.h"
#include "text/chat_template.h"

namespace octet {

// Answers whose content is blank, and of whose calls and thoughts the template renders nothing;
// `untrained` messages are not looked at.
std::vector<LeftOutAnswer> wordless_answers(const ChatTemplate& chat, const OrderedJson& context,
                                            const std::vector<size_t>& untrained,
                                            const std::tm& clock);

// Names of the keys beside the messages' roles and contents without which the conversation is
// trained as the same `texts`: "tools", "chat_template_kwargs.x", "message.tool_calls". A key that
// says nothing (a blank text, an empty list) is none of them.
std::vector<std::string> unread_keys(const ChatTemplate& chat, const OrderedJson& context,
                                     const std::vector<size_t>& untrained,
                                     const std::vector<AnswerText>& texts, const std::tm& clock);

}  // namespace octet
