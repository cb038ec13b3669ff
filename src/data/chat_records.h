// Records of fine-tuning data, as conversations: what a chat template takes.
//
// The format of a record is told by its keys; those in <> have the names of ChatFields.
//   answer tree    tree.tree, answer_generation: ToolBench. The path from the root to the first
//                  node that finishes with an answer, preferring answer_generation.final_answer's
//   messages       <messages>: [{<role>, <content>, ...}]
//   ShareGPT       <conversations>: [{from, value}]; also under <messages>
//   Alpaca         <instruction>, <input> (may be missing), <output> or response
//   pair           <prompt>, <completion>: texts, or lists of messages; else question, answer
//   text           <text>, which is trained whole
// Beside messages, ShareGPT and pairs, `tools` (a list, or its JSON as text) and `system` (a text).
#pragma once

#include <string>
#include <string_view>

#include "base/ordered_json.h"

namespace octet {

struct ChatFields {
  std::string messages = "messages", role = "role", content = "content";
  std::string conversations = "conversations";
  std::string instruction = "instruction", input = "input", output = "output";
  std::string prompt = "prompt", completion = "completion";
  std::string text = "text";
  bool operator==(const ChatFields&) const = default;
};

struct ChatRecord {
  std::string_view format = {};  // as above
  OrderedJson context = {};      // messages, and tools where there are any; null for a text
  std::string text = {};
  std::string note = {};  // of an answer tree: the path
};

// Throws Error{bad_data} with the reason alone, "message without a role", for what is no record.
ChatRecord read_chat_record(std::string_view json, const ChatFields& fields);

// The conversation of an answer tree; as above.
ChatRecord read_answer_tree(const OrderedJson& json);

// Throws Error{bad_data} with a reason that fits many records.
[[noreturn]] void bad_record(const std::string& reason);

}  // namespace octet
