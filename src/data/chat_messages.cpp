#include "data/chat_messages.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "data/chat_pictures.h"

namespace octet {
namespace {

bool is_blank_text(const OrderedJson& json) {
  return json.is_string() && is_blank(json.get_ref<const std::string&>());
}

// Other programs' names of `train` in a message: Axolotl's, ms-swift's and their kin.
constexpr std::string_view kTrainKeys[] = {"train", "training", "trainable", "loss"};

bool is_train_key(std::string_view key) {
  return std::ranges::find(kTrainKeys, key) != std::end(kTrainKeys);
}

// A boolean, or 0 and 1 in its place.
std::optional<bool> truth_of(const OrderedJson& value) {
  if (value.is_boolean()) return value.get<bool>();
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number != 0 && number != 1) return std::nullopt;
  return number == 1;
}

bool says_whether_trained(std::string_view key, const OrderedJson& value) {
  return key == "weight" || key == "train" || (is_train_key(key) && truth_of(value));
}

// The loss that a message of another than the assistant cannot have, by a key that asks for it.
std::optional<std::string> asked_loss(std::string_view key, const OrderedJson& value,
                                      std::string_view role) {
  const bool asks = key == "weight" ? value == 1 : truth_of(value).value_or(false);
  if (role == "assistant" || !asks) return std::nullopt;
  return std::string(key) + " (of another than the assistant)";
}

// True if `weight`, `train` and its other names leave the message in the loss.
bool is_trained(const OrderedJson& json) {
  bool trains = true;
  if (const OrderedJson* weight = find_value(json, "weight")) {
    const double value = weight->is_number() ? weight->get<double>() : -1;
    if (value != 0 && value != 1) bad_record("a message with a weight other than 0 and 1");
    trains = value == 1;
  }
  if (const OrderedJson* train = find_value(json, "train")) {
    if (!train->is_boolean()) bad_record("a message whose 'train' is neither true nor false");
  }
  for (const std::string_view key : kTrainKeys) {
    const OrderedJson* value = find_value(json, std::string(key));
    if (value != nullptr) trains = trains && truth_of(*value).value_or(true);
  }
  return trains;
}

void parse_arguments(OrderedJson& call) {
  const auto it = call.find("arguments");
  if (it == call.end() || !it->is_string()) return;
  const std::string text = it->get<std::string>();
  if (is_blank_text(*it)) {
    *it = OrderedJson::object();
    return;
  }
  OrderedJson parsed;
  try {
    parsed = parse_ordered_json(text, "arguments");
  } catch (const Error& error) {
    bad_record("arguments of a call that are no JSON", json_detail(error));
  }
  if (!parsed.is_object()) bad_record("arguments of a call that are no object");
  *it = std::move(parsed);
}

// OpenAI's calls hold their arguments as JSON text, which templates would quote once more.
void parse_calls(OrderedJson& message) {
  const auto parse = [](OrderedJson& call) {
    if (!call.is_object()) return;
    parse_arguments(call);
    const auto function = call.find("function");
    if (function != call.end() && function->is_object()) parse_arguments(*function);
  };
  if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
    std::ranges::for_each(*calls, parse);
  if (const auto call = message.find("function_call"); call != message.end()) parse(*call);
}

// Templates read one of these names.
void alias_reasoning(OrderedJson& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const OrderedJson* found = find_value(message, name);
    if (found == nullptr) continue;
    const OrderedJson reasoning = *found;
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

// Parts of OpenAI's responses get the type that templates know, "text".
void read_parts(OrderedJson& content, bool may_show) {
  if (content.is_string()) return;
  if (!content.is_array()) bad_record("a message whose content is neither text nor a list");
  for (OrderedJson& part : content) {
    if (!part.is_object()) bad_record("a part of a message that is no object");
    const OrderedJson* type = find_text(part, "type");
    const std::string name = type == nullptr ? "" : type->get<std::string>();
    if (name == "input_text" || name == "output_text") {
      part["type"] = "text";
      continue;
    }
    const bool is_media = name.starts_with("image") || name.starts_with("audio") ||
                          name.starts_with("input_") || name.starts_with("video");
    if (is_media && !(may_show && is_picture_type(name)))
      bad_record("a part of a message of the type '" + name + "', which is not text");
  }
}

ChatMessage read_share(const OrderedJson& json, const std::string& speaker) {
  ChatMessage read{.is_trained = is_trained(json), .is_share = true};
  const std::optional<std::string_view> known = role_of_speaker(speaker);
  if (!known) bad_record("a speaker that is not known");
  const std::string_view role = *known;
  const OrderedJson* value = find_text(json, "value");
  const bool may_be_empty = role == "assistant" && find_value(json, "value") == nullptr;
  if (value == nullptr && !may_be_empty) bad_record("a message without a text");
  read.json = make_message(role, value != nullptr ? *value : OrderedJson(""));
  for (const auto& [key, other] : json.items()) {
    const bool is_used = key == "from" || key == "value" || says_whether_trained(key, other);
    if (!is_used && !other.is_null()) read.ignored.push_back(key);
    if (!says_whether_trained(key, other)) continue;
    if (auto asked = asked_loss(key, other, role)) read.ignored.push_back(*std::move(asked));
  }
  return read;
}

}  // namespace

std::optional<std::string_view> role_of_speaker(std::string_view speaker) {
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
    if (speaker == from) return role;
  }
  return std::nullopt;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

const OrderedJson* find_value(const OrderedJson& json, const std::string& key) {
  if (!json.is_object()) return nullptr;
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return nullptr;
  expect_read(*it, key);
  return &*it;
}

const OrderedJson* find_text(const OrderedJson& json, const std::string& key) {
  const OrderedJson* value = find_value(json, key);
  return value != nullptr && value->is_string() ? value : nullptr;
}

OrderedJson make_message(std::string_view role, const OrderedJson& content) {
  return {{"role", role}, {"content", content}};
}

bool says_nothing(const std::string& key, const OrderedJson& value) {
  return value.is_null() || (key == "tool_calls" && value.is_array() && value.empty());
}

ChatMessage read_message(const OrderedJson& json, const ChatFields& fields) {
  if (!json.is_object()) bad_record("a message that is no object");
  const OrderedJson* role = find_text(json, fields.role);
  const OrderedJson* speaker = find_text(json, "from");
  if (role == nullptr && speaker != nullptr) return read_share(json, speaker->get<std::string>());
  if (role == nullptr) bad_record("a message without a role");
  ChatMessage read{.is_trained = is_trained(json)};
  OrderedJson& message = read.json = OrderedJson::object();
  for (const auto& [key, value] : json.items()) {
    if (says_whether_trained(key, value)) {
      if (auto asked = asked_loss(key, value, role->get_ref<const std::string&>()))
        read.ignored.push_back(*std::move(asked));
      continue;
    }
    if (says_nothing(key, value)) continue;
    const bool is_role = key == fields.role, is_content = key == fields.content;
    const bool has_other_name = key == "role" || key == "content";
    if (!is_role && !is_content && (has_other_name || is_train_key(key))) {
      read.ignored.push_back(key);
    } else {
      message[is_role ? "role" : is_content ? "content" : key] = value;
    }
  }
  const bool has_content = find_value(message, "content") != nullptr;
  if (!has_content && message["role"] != "assistant") bad_record("a message without a text");
  if (has_content) read_parts(message["content"], !fields.image_mark.empty());
  if (fields.arguments == CallArguments::parse) parse_calls(message);
  alias_reasoning(message);
  return read;
}

void normalize_messages(OrderedJson& messages) {
  if (!messages.is_array()) return;
  for (OrderedJson& message : messages) {
    if (!message.is_object()) continue;
    OrderedJson kept = OrderedJson::object();
    for (const auto& [key, value] : message.items())
      if (!says_nothing(key, value)) kept[key] = value;
    alias_reasoning(kept);
    message = std::move(kept);
  }
}

bool is_empty_answer(const OrderedJson& message) {
  const OrderedJson* content = find_value(message, "content");
  if (content != nullptr && !is_blank_text(*content) && !content->empty()) return false;
  return std::ranges::none_of(
      std::initializer_list<const char*>{"tool_calls", "function_call", "reasoning_content"},
      [&](const char* name) {
        const OrderedJson* value = find_value(message, name);
        return value != nullptr && !is_blank_text(*value) && !value->empty();
      });
}

void join_parts(OrderedJson& messages) {
  for (OrderedJson& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    std::string joined;
    for (const OrderedJson& part : *content) {
      const OrderedJson* text = find_text(part, "text");
      const OrderedJson* type = find_value(part, "type");
      const bool is_picture = type != nullptr && *type == "image";  // whose text is its mark
      if (text == nullptr || (type != nullptr && *type != "text" && !is_picture)) {
        bad_record("a part of a message that is no text, for a template that takes texts",
                   type == nullptr ? "" : type->dump());
      }
      if (&part != &content->front()) joined += '\n';
      joined += text->get_ref<const std::string&>();
    }
    *content = joined;
  }
}

}  // namespace octet
