#include "data/unread_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "data/chat_messages.h"
#include "data/chat_records.h"

namespace octet {
namespace {

constexpr std::string_view kThoughts[] = {"reasoning_content", "thinking", "reasoning"};

enum class KeyOf : uint8_t { record, template_variables, message, part };

// A key of the context; of messages, of all of them; of parts a type, "" where a part has none. A
// thought has several names at once.
struct ExtraKey {
  KeyOf of = KeyOf::record;
  std::vector<std::string> names = {};  // the first one is the file's
  bool operator==(const ExtraKey&) const = default;
};

// "" of a part that has none.
std::string type_of_part(const OrderedJson& part) {
  const OrderedJson* type = find_text(part, "type");
  return type == nullptr ? "" : type->get<std::string>();
}

bool is_thought(std::string_view name) {
  return std::ranges::find(kThoughts, name) != std::end(kThoughts);
}

bool is_nothing(const OrderedJson& value) {
  if (value.is_string()) return is_blank(value.get_ref<const std::string&>());
  return value.is_null() || (value.is_structured() && value.empty());
}

void add_keys(const OrderedJson& json, KeyOf of, std::vector<ExtraKey>& keys) {
  std::optional<size_t> thought;
  for (const auto& [name, value] : json.items()) {
    const bool is_own = of == KeyOf::message ? name == "role" || name == "content"
                                             : name == "messages" || name == "kwargs";
    if (is_nothing(value) || (is_own && of != KeyOf::template_variables)) continue;
    if (of == KeyOf::message && is_thought(name)) {
      if (thought) continue;
      thought = keys.size();
      ExtraKey key{of, {name}};
      for (const std::string_view other : kThoughts) {
        if (other != name) key.names.emplace_back(other);
      }
      keys.push_back(std::move(key));
    } else {
      keys.push_back({of, {name}});
    }
  }
}

// Types of the parts of messages that are no texts or pictures.
void add_part_types(const OrderedJson& message, std::vector<ExtraKey>& keys) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  for (const OrderedJson& part : *content) {
    const std::string type = type_of_part(part);
    if (type != "text" && type != "image") keys.push_back({KeyOf::part, {type}});
  }
}

std::vector<ExtraKey> keys_of(const OrderedJson& context) {
  std::vector<ExtraKey> keys;
  add_keys(context, KeyOf::record, keys);
  if (context.contains("kwargs")) add_keys(context["kwargs"], KeyOf::template_variables, keys);
  std::vector<ExtraKey> all;
  for (const OrderedJson& message : context["messages"]) {
    add_keys(message, KeyOf::message, all);
    add_part_types(message, all);
  }
  for (ExtraKey& key : all) {
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(std::move(key));
  }
  return keys;
}

std::string name_of(const ExtraKey& key) {
  if (key.of == KeyOf::part)
    return fmt::format("message.content (parts of type '{}')", key.names.front());
  const char* place = key.of == KeyOf::message              ? "message."
                      : key.of == KeyOf::template_variables ? "chat_template_kwargs."
                                                            : "";
  return place + key.names.front();
}

// A switch is turned over, as what it says may be what the template takes without it.
enum class Change : uint8_t { erase, turn_over };

void change(OrderedJson& json, const std::string& name, Change how) {
  const auto found = json.find(name);
  if (found == json.end()) return;
  if (how == Change::erase) {
    json.erase(found);
  } else if (found->is_boolean()) {
    *found = !found->get<bool>();
  }
}

void erase_parts(OrderedJson& context, const std::string& type) {
  for (OrderedJson& message : context["messages"]) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    OrderedJson kept = OrderedJson::array();
    for (const OrderedJson& part : *content)
      if (type_of_part(part) != type) kept.push_back(part);
    *content = std::move(kept);
  }
}

void change(OrderedJson& context, const ExtraKey& key, Change how) {
  for (const std::string& name : key.names) {
    if (key.of == KeyOf::record) change(context, name, how);
    if (key.of == KeyOf::template_variables) change(context["kwargs"], name, how);
    if (key.of == KeyOf::part && how == Change::erase) erase_parts(context, name);
    if (key.of != KeyOf::message) continue;
    for (OrderedJson& message : context["messages"]) change(message, name, how);
  }
}

bool holds_switch(const OrderedJson& context, const ExtraKey& key) {
  OrderedJson turned = context;
  change(turned, key, Change::turn_over);
  return turned != context;
}

// True if a template renders `text` of it; one that refuses does not.
template <typename Render>
bool renders_same(const std::string& text, const Render& render) {
  try {
    return render() == text;
  } catch (const jinja::BudgetExceeded&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_data) throw;
    return false;
  }
}

class Differences {
 public:
  Differences(const ChatTemplate& chat, const OrderedJson& context,
              const std::vector<size_t>& untrained, const std::vector<AnswerText>& texts,
              const std::tm& clock)
      : chat_(chat),
        context_(context),
        untrained_(untrained),
        texts_(texts),
        clock_(clock),
        whole_(chat.render(context, clock)) {}

  bool reads(const std::vector<ExtraKey>& keys) const {
    if (differs(keys, Change::erase)) return true;
    std::vector<ExtraKey> switches;
    std::ranges::copy_if(keys, std::back_inserter(switches),
                         [&](const ExtraKey& key) { return holds_switch(context_, key); });
    return !switches.empty() && differs(switches, Change::turn_over);
  }

 private:
  bool differs(const std::vector<ExtraKey>& keys, Change how) const {
    OrderedJson other = context_;
    for (const ExtraKey& key : keys) change(other, key, how);
    if (!renders_same(whole_, [&] { return chat_.render(other, clock_); })) return true;
    try {
      const std::vector<AnswerText> texts = answer_texts(chat_, other, untrained_, clock_).texts;
      return !std::ranges::equal(texts, texts_, [](const AnswerText& a, const AnswerText& b) {
        return a.text == b.text && a.spans == b.spans;
      });
    } catch (const jinja::BudgetExceeded&) {
      throw;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      return true;
    }
  }

  const ChatTemplate& chat_;
  const OrderedJson& context_;
  const std::vector<size_t>& untrained_;
  const std::vector<AnswerText>& texts_;
  const std::tm& clock_;
  std::string whole_;
};

}  // namespace

std::vector<LeftOutAnswer> wordless_answers(const ChatTemplate& chat, const OrderedJson& context,
                                            const std::vector<size_t>& untrained,
                                            const std::tm& clock) {
  std::vector<LeftOutAnswer> found;
  const OrderedJson& messages = context["messages"];
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool is_looked_at =
        messages[i]["role"] == "assistant" && std::ranges::find(untrained, i) == untrained.end();
    const auto content = messages[i].find("content");
    if (!is_looked_at || (content != messages[i].end() && !is_nothing(*content))) continue;
    std::vector<ExtraKey> keys;
    add_keys(messages[i], KeyOf::message, keys);
    OrderedJson without = context;
    std::vector<std::string> names;
    for (const ExtraKey& key : keys) {
      names.push_back(fmt::format("'{}'", key.names.front()));
      for (const std::string& name : key.names) change(without["messages"][i], name, Change::erase);
    }
    try {
      const std::string text = chat.render_prefix(context, clock, i + 1, false);
      const bool is_wordless =
          renders_same(text, [&] { return chat.render_prefix(without, clock, i + 1, false); });
      if (!is_wordless) continue;
    } catch (const jinja::BudgetExceeded&) {
      throw;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      continue;  // answer_texts() tells
    }
    found.push_back({i, fmt::format("an answer of {} alone, of which the template renders nothing",
                                    fmt::join(names, " and "))});
  }
  return found;
}

std::vector<std::string> unread_keys(const ChatTemplate& chat, const OrderedJson& context,
                                     const std::vector<size_t>& untrained,
                                     const std::vector<AnswerText>& texts, const std::tm& clock) {
  std::vector<ExtraKey> keys = keys_of(context);
  if (keys.empty()) return {};
  const Differences differences(chat, context, untrained, texts, clock);
  if (differences.reads(keys)) {
    std::erase_if(keys, [&](const ExtraKey& key) { return differences.reads({key}); });
  }
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const ExtraKey& key : keys) names.push_back(name_of(key));
  return names;
}

}  // namespace octet
