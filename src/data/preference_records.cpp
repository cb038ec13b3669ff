#include "data/preference_records.h"

#include <algorithm>
#include <span>

#include "data/chat_messages.h"
#include "data/text_files.h"

namespace octet {
namespace {

constexpr const char *kChosen = "chosen", *kRejected = "rejected";

bool is_there(const OrderedJson& json, const std::string& key) {
  const auto found = json.find(key);
  return found != json.end() && !found->is_null();
}

bool is_message(const OrderedJson& json) {
  return json.is_object();
}

std::string role_of(const OrderedJson& message, const ChatFields& fields) {
  for (const std::string& key : {fields.role, std::string("from")}) {
    if (is_there(message, key) && message[key].is_string()) return message[key];
  }
  return "";
}

bool is_assistant(const OrderedJson& message, const ChatFields& fields) {
  return role_of_speaker(role_of(message, fields)) == "assistant";
}

// A list of messages that does not begin with the assistant's: a conversation with its prompt.
bool is_whole(const OrderedJson& answer, const ChatFields& fields) {
  return answer.is_array() && answer.size() > 1 && is_message(answer[0]) &&
         !is_assistant(answer[0], fields);
}

class PairReader {
 public:
  PairReader(OrderedJson json, const ChatFields& fields) : json_(std::move(json)), fields_(fields) {
    for (const char* key : {kChosen, kRejected}) {
      if (!is_there(json_, key)) bad_record("no 'chosen' and 'rejected'");
      expect_read(json_[key], key);
    }
    chosen_ = json_[kChosen];
    rejected_ = json_[kRejected];
    json_.erase(kChosen);
    json_.erase(kRejected);
  }

  PreferenceRecord read() const {
    if (chosen_ == rejected_) bad_record("a chosen answer that is the rejected one");
    const bool are_whole = is_whole(chosen_, fields_) && is_whole(rejected_, fields_);
    return are_whole ? read_whole() : PreferenceRecord{read_one(chosen_), read_one(rejected_)};
  }

 private:
  PreferenceRecord read_whole() const {
    const auto first = std::ranges::mismatch(chosen_, rejected_).in1 - chosen_.begin();
    if (first == 0) bad_record("two conversations that begin with other messages");
    const auto one = [&](const OrderedJson& messages) {
      OrderedJson json = json_;
      for (const std::string& key :
           {fields_.prompt, fields_.instruction, fields_.input, fields_.messages,
            fields_.conversations, std::string("question")}) {
        if (is_there(json, key)) expect_said(key, messages, first);
        json.erase(key);
      }
      json[fields_.messages] = messages;
      return masked(json, std::ssize(messages) - first);
    };
    return {one(chosen_), one(rejected_)};
  }

  // Beside two whole conversations a prompt is what they begin with: their messages, or the text of
  // one of them.
  void expect_said(const std::string& key, const OrderedJson& messages,
                   std::ptrdiff_t n_common) const {
    const OrderedJson& prompt = json_[key];
    const auto common = std::span(messages.get_ref<const OrderedJson::array_t&>())
                            .first(static_cast<size_t>(n_common));
    const auto says = [&](const OrderedJson& message) {
      for (const std::string& name : {fields_.content, std::string("value")}) {
        if (!is_there(message, name) || !message[name].is_string() || !prompt.is_string()) continue;
        const std::string_view text = stripped(prompt.get_ref<const std::string&>());
        if (message[name].get_ref<const std::string&>().find(text) != std::string::npos)
          return true;
      }
      return false;
    };
    const bool is_list = prompt.is_array() && prompt.size() <= common.size() &&
                         std::ranges::equal(prompt.get_ref<const OrderedJson::array_t&>(),
                                            common.first(prompt.size()));
    if (is_list || std::ranges::any_of(common, says)) return;
    bad_record("a '" + key + "' that is not what both conversations begin with");
  }

  // Reads the record as one of another format, whose answer this is.
  ChatRecord read_one(const OrderedJson& answer) const {
    OrderedJson json = json_;
    const bool is_text = answer.is_string();
    OrderedJson list = answer.is_array() ? answer : OrderedJson::array({answer});
    for (const std::string& key : {fields_.messages, fields_.conversations}) {
      if (!is_there(json, key)) continue;
      if (!json[key].is_array()) bad_record("messages that are no list");
      if (is_text) list = OrderedJson::array({spoken(answer, json[key])});
      for (const OrderedJson& message : list) json[key].push_back(message);
      return masked(json, std::ssize(list));
    }
    for (const auto& [prompt, completion] :
         {std::pair(fields_.instruction, fields_.output),
          std::pair(fields_.prompt, fields_.completion),
          std::pair<std::string, std::string>("question", "answer")}) {
      if (!is_there(json, prompt)) continue;
      const bool is_replaced = is_there(json, completion);
      const bool is_list = json[prompt].is_array();
      json[completion] = !is_text && is_list ? list : text_of(answer);
      if (is_text && is_list) json[completion] = OrderedJson::array({spoken(answer, json[prompt])});
      ChatRecord record = masked(json, is_list ? std::ssize(json[completion]) : 1);
      if (is_replaced) record.ignored.push_back(completion);
      return record;
    }
    bad_record("no prompt of 'chosen' and 'rejected'");
  }

  // A text as the assistant's message, in the words of the messages before it.
  OrderedJson spoken(const OrderedJson& text, const OrderedJson& before) const {
    const bool is_share = !before.empty() && is_message(before[0]) && is_there(before[0], "from");
    if (is_share) return {{"from", "gpt"}, {"value", text}};
    return {{fields_.role, "assistant"}, {fields_.content, text}};
  }

  // Beside a prompt that is a text: of one message its words.
  OrderedJson text_of(const OrderedJson& answer) const {
    if (answer.is_string()) return answer;
    const OrderedJson& message = answer.is_array() && answer.size() == 1 ? answer[0] : answer;
    for (const std::string& key : {fields_.content, std::string("value")}) {
      if (is_message(message) && is_there(message, key)) return message[key];
    }
    bad_record("an answer to a text that is neither a text nor one message");
  }

  // The record, of which all but the last n messages are the prompt.
  ChatRecord masked(const OrderedJson& json, int64_t n) const {
    ChatRecord record = read_chat_record(json_line(json), fields_);
    if (record.format == "text") bad_record("no prompt of 'chosen' and 'rejected'");
    const OrderedJson& messages = record.context["messages"];
    for (size_t i = 0; i + static_cast<size_t>(n) < messages.size(); ++i) {
      const bool is_known = std::ranges::find(record.masked, i) != record.masked.end();
      if (messages[i]["role"] == "assistant" && !is_known) record.masked.push_back(i);
    }
    std::erase_if(record.empty, [&](size_t i) {
      return std::ranges::find(record.masked, i) != record.masked.end();
    });
    return record;
  }

  OrderedJson json_, chosen_, rejected_;
  const ChatFields& fields_;
};

}  // namespace

PreferenceRecord read_preference_record(std::string_view text, const ChatFields& fields) {
  return PairReader(parse_record(text), fields).read();
}

}  // namespace octet
