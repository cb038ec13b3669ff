// Records of fine-tuning data, as conversations: what a chat template takes.
//
// The format of a record is told by its keys; those in <> have the names of ChatFields.
//   answer tree    tree.tree, answer_generation: ToolBench. The path from the root to the first
//                  node that finishes with an answer, preferring answer_generation.final_answer's
//   messages       <messages>: [{<role>, <content>, ...}]
//   ShareGPT       <conversations>: [{from, value}]; also under <messages>
//   Alpaca         <instruction>, <input> or context (may be missing), <output> or response
//   pair           <prompt>, <completion>: texts, or lists of messages; else question, answer, and
//                  context before the question
//   text           <text>, which is trained whole
// Beside Alpaca and pairs of texts, `history`: [[question, answer]]. Beside all but text, `tools`
// (a list, or its JSON as text), `system` (a text), `documents` and `chat_template_kwargs`; and of
// models that see pictures `image` or `images` (data/chat_pictures.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/named_enum.h"
#include "base/ordered_json.h"

namespace octet {

// The text under `arguments` of a call becomes what its JSON means, or it stays a text.
enum class CallArguments : uint8_t { parse, keep };
constexpr auto value_names(CallArguments) {
  return name_list("parse", "keep");
}

struct ChatFields {
  std::string messages = "messages", role = "role", content = "content";
  std::string conversations = "conversations";
  std::string instruction = "instruction", input = "input", output = "output";
  std::string prompt = "prompt", completion = "completion";
  std::string text = "text";
  CallArguments arguments = CallArguments::parse;
  std::string image_mark = {};  // that stands for a picture; empty: there are none (no key)
  bool operator==(const ChatFields&) const = default;
};

// A picture's file, relative to the folder of the record's, or the bytes of one that the record
// itself holds.
struct ChatPicture {
  std::string path = {}, bytes = {};
  bool operator==(const ChatPicture&) const = default;
};

struct ChatRecord {
  std::string_view format = {};  // as above
  OrderedJson context = {};      // messages, and tools where there are any; null for a text
  std::string text = {};
  std::string note = {};                   // of an answer tree: the path
  std::vector<std::string> ignored = {};   // keys that nothing is made of
  std::vector<size_t> masked = {};         // messages of the assistant that are not trained
  std::vector<size_t> empty = {};          // those that say nothing, which are not trained either
  std::vector<ChatPicture> pictures = {};  // by their places
  std::string image_mark = {};             // ChatFields'
};

// Why there is no record, in words that fit many; `detail` is of this one.
class BadRecord : public Error {
 public:
  BadRecord(const std::string& reason, std::string detail)
      : Error(ErrorCode::bad_data, reason), detail_(std::move(detail)) {}
  const std::string& detail() const { return detail_; }

 private:
  std::string detail_;
};
[[noreturn]] void bad_record(const std::string& reason, const std::string& detail = {});

// The fault of a text that is no JSON, without the place where it stands.
std::string json_detail(const Error& error);

// A fault that no run may leave out and train on the rest of the file: data for training of another
// kind, special tokens that are none.
class DataRefusal : public Error {
 public:
  explicit DataRefusal(const std::string& what) : Error(ErrorCode::bad_data, what) {}
};

// The object of a record. Throws BadRecord for a text that is none.
OrderedJson parse_record(std::string_view text);

// Throws BadRecord, "message without a role", for what is no record, and DataRefusal for pairs of
// preferences.
ChatRecord read_chat_record(std::string_view json, const ChatFields& fields);

// The conversation of an answer tree; as above.
ChatRecord read_answer_tree(const OrderedJson& json);

// True if a key of a message says nothing, and no template sees it: it is null, or a list of no
// calls.
bool says_nothing(const std::string& key, const OrderedJson& value);

}  // namespace octet
