#include "data/chat_records.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace octet {
namespace {

const OrderedJson* find(const OrderedJson& json, const std::string& key) {
  if (!json.is_object()) return nullptr;
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return nullptr;
  expect_read(*it, key);
  return &*it;
}

const OrderedJson* find_text(const OrderedJson& json, const std::string& key) {
  const OrderedJson* value = find(json, key);
  return value != nullptr && value->is_string() ? value : nullptr;
}

OrderedJson message(std::string_view role, const OrderedJson& content) {
  return {{"role", role}, {"content", content}};
}

// The speakers of ShareGPT as the roles of chat templates.
std::string role_of_speaker(const std::string& speaker) {
  constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
      {"human", "user"},
      {"user", "user"},
      {"gpt", "assistant"},
      {"assistant", "assistant"},
      {"model", "assistant"},
      {"bot", "assistant"},
      {"system", "system"},
      {"function_call", "assistant"},
      {"tool_call", "assistant"},
      {"observation", "tool"},
      {"tool", "tool"},
      {"function", "tool"},
      {"function_response", "tool"}};
  for (const auto& [from, role] : kRoles) {
    if (speaker == from) return std::string(role);
  }
  bad_record("a speaker that is not known");
}

// Either style, as {role, content, ...}. `is_share` tells whether it was ShareGPT's.
OrderedJson read_message(const OrderedJson& json, const ChatFields& fields, bool& is_share) {
  if (!json.is_object()) bad_record("a message that is no object");
  const OrderedJson* role = find_text(json, fields.role);
  const OrderedJson* speaker = find_text(json, "from");
  if (role == nullptr && speaker != nullptr) {
    is_share = true;
    const OrderedJson* value = find_text(json, "value");
    if (value == nullptr) bad_record("a message without a text");
    return message(role_of_speaker(speaker->get<std::string>()), *value);
  }
  if (role == nullptr) bad_record("a message without a role");
  OrderedJson read = json;
  const OrderedJson* content = find(json, fields.content);
  const bool has_calls = json.contains("tool_calls") || json.contains("function_call");
  if (content == nullptr && !has_calls) bad_record("a message without a text");
  if (fields.role != "role") read.erase(fields.role);
  if (fields.content != "content") read.erase(fields.content);
  read["role"] = *role;
  read["content"] = content != nullptr ? *content : OrderedJson(nullptr);
  return read;
}

OrderedJson read_messages(const OrderedJson& list, const ChatFields& fields, bool& is_share) {
  if (!list.is_array()) bad_record("messages that are no list");
  if (list.empty()) bad_record("an empty list of messages");
  OrderedJson messages = OrderedJson::array();
  for (const OrderedJson& json : list) messages.push_back(read_message(json, fields, is_share));
  return messages;
}

// `tools` and `system` of the record.
void add_surroundings(const OrderedJson& json, OrderedJson& context) {
  if (const OrderedJson* tools = find(json, "tools")) {
    OrderedJson list = *tools;
    if (tools->is_string()) {
      const auto& text = tools->get_ref<const std::string&>();
      if (text.find_first_not_of(" \t\r\n") == text.npos) return;
      try {
        list = parse_ordered_json(text, "tools");
      } catch (const Error&) {
        bad_record("tools that are no JSON");
      }
    }
    if (!list.is_array()) bad_record("tools that are no list");
    if (!list.empty()) context["tools"] = list;
  }
  const OrderedJson* system = find_text(json, "system");
  OrderedJson& messages = context["messages"];
  if (system == nullptr || system->get_ref<const std::string&>().empty()) return;
  if (!messages.empty() && messages[0]["role"] == "system") return;
  messages.insert(messages.begin(), message("system", *system));
}

ChatRecord read_list(const OrderedJson& json, const OrderedJson& list, const ChatFields& fields) {
  bool is_share = false;
  ChatRecord record;
  record.context["messages"] = read_messages(list, fields, is_share);
  record.format = is_share ? "ShareGPT" : "messages";
  add_surroundings(json, record.context);
  const OrderedJson& messages = record.context["messages"];
  const bool has_answer = std::any_of(messages.begin(), messages.end(), [](const OrderedJson& m) {
    return m["role"] == "assistant";
  });
  if (has_answer) return record;
  bad_record(json.contains("chosen") ? "a pair of preferences, which is not supported"
                                     : "no message of the assistant");
}

ChatRecord conversation(std::string_view format, const OrderedJson& question,
                        const OrderedJson& answer) {
  if (!question.is_string() || !answer.is_string())
    bad_record("a question or answer that is no text");
  if (answer.get_ref<const std::string&>().empty()) bad_record("an empty answer");
  ChatRecord record{.format = format};
  record.context["messages"] = {message("user", question), message("assistant", answer)};
  return record;
}

ChatRecord read_alpaca(const OrderedJson& json, const ChatFields& fields) {
  const OrderedJson* output = find(json, fields.output);
  if (output == nullptr) output = find(json, "response");
  if (output == nullptr) bad_record("an instruction without an output");
  OrderedJson question = *find(json, fields.instruction);
  const OrderedJson* input = find_text(json, fields.input);
  if (question.is_string() && input != nullptr && !input->get_ref<const std::string&>().empty()) {
    question = question.get<std::string>() + "\n" + input->get<std::string>();
  }
  ChatRecord record = conversation("Alpaca", question, *output);
  add_surroundings(json, record.context);
  return record;
}

ChatRecord read_pair(const OrderedJson& json, const OrderedJson& prompt,
                     const OrderedJson& completion, const ChatFields& fields) {
  ChatRecord record;
  if (prompt.is_array() && completion.is_array()) {
    OrderedJson all = prompt;
    for (const OrderedJson& one : completion) all.push_back(one);
    record = read_list(json, all, fields);
    record.format = "pair";
    return record;
  }
  record = conversation("pair", prompt, completion);
  add_surroundings(json, record.context);
  return record;
}

}  // namespace

void bad_record(const std::string& reason) {
  throw Error(ErrorCode::bad_data, "{}", reason);
}

ChatRecord read_chat_record(std::string_view text, const ChatFields& fields) {
  OrderedJson json;
  try {
    json = parse_ordered_json(text, "");
  } catch (const Error&) {
    bad_record("not JSON");
  }
  if (!json.is_object()) bad_record("no object");
  if (find(json, "answer_generation") != nullptr && find(json, "tree") != nullptr) {
    return read_answer_tree(json);
  }
  for (const std::string& key : {fields.messages, fields.conversations}) {
    if (const OrderedJson* list = find(json, key)) return read_list(json, *list, fields);
  }
  if (find(json, fields.instruction) != nullptr) return read_alpaca(json, fields);
  for (const auto& [prompt, completion] :
       {std::pair(fields.prompt, fields.completion),
        std::pair<std::string, std::string>("question", "answer")}) {
    const OrderedJson* one = find(json, prompt);
    const OrderedJson* other = find(json, completion);
    if (one != nullptr && other != nullptr) return read_pair(json, *one, *other, fields);
  }
  const OrderedJson* plain = find_text(json, fields.text);
  if (plain == nullptr) bad_record("no fields that are known");
  if (plain->get_ref<const std::string&>().empty()) bad_record("an empty text");
  return {.format = "text", .context = nullptr, .text = plain->get<std::string>()};
}

}  // namespace octet
