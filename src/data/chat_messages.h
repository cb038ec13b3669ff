// One message of a record, as a chat template takes it. Internal to src/data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "data/chat_records.h"

namespace octet {

bool is_blank(std::string_view text);

// The role of chat templates that a speaker of ShareGPT has; nothing of one that is not known.
std::optional<std::string_view> role_of_speaker(std::string_view speaker);

// The value under a key that is there and not null; nullptr otherwise. Throws Error{bad_data} where
// a value within could not be read (expect_read).
const OrderedJson* find_value(const OrderedJson& json, const std::string& key);
const OrderedJson* find_text(const OrderedJson& json, const std::string& key);

struct ChatMessage {
  OrderedJson json = {};
  bool is_trained = true;                 // false: its `weight` is 0, or its `train` false
  bool is_share = false;                  // ShareGPT's {from, value}
  std::vector<std::string> ignored = {};  // keys that nothing is made of
};

// A message as transformers hands it to templates: keys that are null are dropped, reasoning has
// all its names; and as servers do, the `arguments` of a call are what their JSON text means, where
// the fields ask for it. Throws as bad_record does.
ChatMessage read_message(const OrderedJson& json, const ChatFields& fields);

// The messages of a conversation that is rendered as it is given: each without keys that say
// nothing, reasoning with all its names. What is no list of objects stays as it is.
void normalize_messages(OrderedJson& messages);

OrderedJson make_message(std::string_view role, const OrderedJson& content);

// An answer that says, thinks and calls nothing.
bool is_empty_answer(const OrderedJson& message);

// The content of messages that is a list of texts as one text, a line each.
void join_parts(OrderedJson& messages);

}  // namespace octet
