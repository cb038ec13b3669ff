#include "data/chat_records.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/few.h"
#include "data/chat_messages.h"
#include "data/chat_pictures.h"

namespace octet {
namespace {

bool is_text(const OrderedJson* value) {
  return value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty();
}

// A record, and which of its keys something was made of.
class Keys {
 public:
  explicit Keys(const OrderedJson& json) : json_(json) {}

  const OrderedJson* peek(const std::string& key) const { return find_value(json_, key); }
  bool has(const std::string& key) const { return peek(key) != nullptr; }
  const OrderedJson* take(const std::string& key) {
    used_.insert(key);
    return find_value(json_, key);
  }
  std::vector<std::string> ignored() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : json_.items())
      if (!value.is_null() && !used_.contains(key)) keys.push_back(key);
    return keys;
  }

 private:
  const OrderedJson& json_;
  std::set<std::string> used_;
};

class RecordReader {
 public:
  RecordReader(const OrderedJson& json, const ChatFields& fields) : keys_(json), fields_(fields) {}

  ChatRecord read() {
    refuse_other_training();
    for (const char* media : {"image", "images", "audio", "audios", "video", "videos"}) {
      const OrderedJson* value = keys_.take(media);
      const bool is_picture = std::string_view(media).starts_with("image");
      if (value != nullptr && !value->empty() && is_picture && !fields_.image_mark.empty()) {
        std::ranges::move(listed_pictures(*value), std::back_inserter(listed_));
      } else if (value != nullptr && !value->empty()) {
        bad_record(std::string("'") + media + "', which is not text");
      }
    }
    read_format();
    finish();
    return std::move(record_);
  }

 private:
  void refuse_other_training() const {
    const auto refuse = [](const std::string& what, const std::string& how) {
      throw DataRefusal("expected conversations, got pairs of preferences (" + what + ")" + how);
    };
    if (keys_.has("chosen") && keys_.has("rejected"))
      refuse("'chosen' and 'rejected'", ": train.loss dpo, ipo, simpo or orpo trains on them");
    if (keys_.has("kto_tag")) refuse("'kto_tag'", ", on which training is not supported");
  }

  void read_format() {
    for (const std::string& key : {fields_.messages, fields_.conversations}) {
      if (!keys_.has(key)) continue;
      record_.format = "messages";
      return add_messages(*keys_.take(key));
    }
    if (keys_.has(fields_.instruction)) return read_alpaca();
    for (const auto& [prompt, completion] :
         {std::pair(fields_.prompt, fields_.completion),
          std::pair<std::string, std::string>("question", "answer")}) {
      if (keys_.has(prompt) && keys_.has(completion)) return read_pair(prompt, completion);
    }
    const OrderedJson* plain = keys_.take(fields_.text);
    if (plain == nullptr || !plain->is_string())
      bad_record("no fields that are known", first_few(keys_.ignored()));
    if (!is_text(plain)) bad_record("an empty text");
    record_.format = "text";
    record_.text = plain->get<std::string>();
  }

  // Rules that hold for all formats.
  void finish() {
    if (record_.format != "text") add_surroundings();
    if (record_.format == "text" && !listed_.empty()) bad_record("a picture beside a text");
    if (record_.format != "text" && !fields_.image_mark.empty()) {
      record_.image_mark = fields_.image_mark;
      record_.pictures =
          place_pictures(record_.context["messages"], std::move(listed_), fields_.image_mark);
    }
    const std::vector<std::string> ignored = keys_.ignored();
    record_.ignored.insert(record_.ignored.end(), ignored.begin(), ignored.end());
    if (record_.format == "text") return;
    size_t n_answers = 0, n_trained = 0, i = 0;
    for (const OrderedJson& message : record_.context["messages"]) {
      if (message["role"] == "assistant") {
        ++n_answers;
        const bool is_masked = std::ranges::find(record_.masked, i) != record_.masked.end();
        if (is_empty_answer(message) && !is_masked) record_.empty.push_back(i);
        n_trained += is_masked || is_empty_answer(message) ? 0 : 1;
      }
      ++i;
    }
    if (n_answers == 0) bad_record("no message of the assistant");
    if (n_trained > 0) return;
    bad_record(record_.empty.empty() ? "no answer that is trained (weight 0, or train false)"
                                     : "an empty answer");
  }

  void add_message(OrderedJson message) {
    record_.context["messages"].push_back(std::move(message));
  }

  void add_messages(const OrderedJson& list) {
    if (!list.is_array()) bad_record("messages that are no list");
    if (list.empty()) bad_record("an empty list of messages");
    for (const OrderedJson& json : list) {
      ChatMessage read = read_message(json, fields_);
      if (read.is_share) record_.format = "ShareGPT";
      for (const std::string& key : read.ignored) {
        const std::string name = "message." + key;
        if (std::ranges::find(record_.ignored, name) == record_.ignored.end())
          record_.ignored.push_back(name);
      }
      if (!read.is_trained) record_.masked.push_back(record_.context["messages"].size());
      add_message(std::move(read.json));
    }
  }

  // Turns before the question.
  void add_history() {
    const OrderedJson* history = keys_.take("history");
    if (history == nullptr || history->empty()) return;
    const auto is_turn = [](const OrderedJson& turn) {
      return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
    };
    if (!history->is_array() || !std::ranges::all_of(*history, is_turn)) {
      bad_record("a history that is no list of pairs of texts");
    }
    for (const OrderedJson& turn : *history) {
      add_message(make_message("user", turn[0]));
      add_message(make_message("assistant", turn[1]));
    }
  }

  void add_turn(std::string_view format, const OrderedJson& question, const OrderedJson& answer) {
    if (!question.is_string() || !answer.is_string())
      bad_record("a question or answer that is no text");
    record_.format = format;
    add_history();
    add_message(make_message("user", question));
    add_message(make_message("assistant", answer));
  }

  // The text of a key that may be missing; "" then.
  std::string text_of(const std::string& key) {
    const OrderedJson* value = keys_.take(key);
    if (value != nullptr && !value->is_string()) bad_record("a '" + key + "' that is no text");
    return value == nullptr ? "" : value->get<std::string>();
  }

  void read_alpaca() {
    OrderedJson question = *keys_.take(fields_.instruction);
    const bool has_output = keys_.has(fields_.output);
    const OrderedJson* output = keys_.take(has_output ? fields_.output : "response");
    if (output == nullptr) bad_record("an instruction without an output");
    const std::string input = text_of(fields_.input), context = text_of("context");
    if (!input.empty() && !context.empty()) bad_record("both an input and a context");
    if (question.is_string() && !(input + context).empty())
      question = question.get<std::string>() + "\n" + input + context;
    add_turn("Alpaca", question, *output);
  }

  void read_pair(const std::string& prompt, const std::string& completion) {
    const OrderedJson& one = *keys_.take(prompt);
    const OrderedJson& other = *keys_.take(completion);
    const OrderedJson* label = keys_.peek("label");
    if (label != nullptr && label->is_boolean()) {
      throw DataRefusal(
          "expected conversations, got answers that are called good or bad ('label'), on which "
          "training is not supported");
    }
    if (one.is_array() && other.is_array()) {
      OrderedJson all = one;
      for (const OrderedJson& message : other) all.push_back(message);
      add_messages(all);
      record_.format = "pair";
      return;
    }
    const std::string context = text_of("context");
    if (context.empty() || !one.is_string()) return add_turn("pair", one, other);
    add_turn("pair", context + "\n" + one.get<std::string>(), other);
  }

  void add_tools() {
    const OrderedJson* tools = keys_.take("tools");
    if (tools == nullptr) return;
    OrderedJson list = *tools;
    if (tools->is_string()) {
      const auto& text = tools->get_ref<const std::string&>();
      if (is_blank(text)) return;
      try {
        list = parse_ordered_json(text, "tools");
      } catch (const Error& error) {
        bad_record("tools that are no JSON", json_detail(error));
      }
    }
    if (!list.is_array()) bad_record("tools that are no list");
    if (!list.empty()) record_.context["tools"] = list;
  }

  void add_system() {
    const std::string system = text_of("system");
    OrderedJson& messages = record_.context["messages"];
    if (system.empty()) return;
    if (!messages.empty() && messages[0]["role"] == "system") {
      if (messages[0]["content"] == system) return;
      return record_.ignored.push_back("system (beside a message of the system)");
    }
    messages.insert(messages.begin(), make_message("system", system));
    for (size_t& masked : record_.masked) ++masked;
  }

  void add_surroundings() {
    add_tools();
    add_system();
    if (const OrderedJson* documents = keys_.take("documents")) {
      if (!documents->is_array()) bad_record("documents that are no list");
      record_.context["documents"] = *documents;
    }
    if (const OrderedJson* kwargs = keys_.take("chat_template_kwargs")) {
      if (!kwargs->is_object()) bad_record("chat_template_kwargs that are no object");
      record_.context["kwargs"] = *kwargs;
    }
  }

  Keys keys_;
  const ChatFields& fields_;
  ChatRecord record_;
  std::vector<ChatPicture> listed_;
};

}  // namespace

std::string json_detail(const Error& error) {
  const std::string what = error.what();
  const size_t colon = what.find(": ");
  return colon == what.npos ? what : what.substr(colon + 2);
}

void bad_record(const std::string& reason, const std::string& detail) {
  throw BadRecord(reason, detail);
}

OrderedJson parse_record(std::string_view text) {
  OrderedJson json;
  try {
    json = parse_ordered_json(text, "");
  } catch (const Error& error) {
    bad_record("not JSON", json_detail(error));
  }
  if (!json.is_object()) bad_record("no object");
  return json;
}

ChatRecord read_chat_record(std::string_view text, const ChatFields& fields) {
  const OrderedJson json = parse_record(text);
  const bool is_tree = find_value(json, "answer_generation") != nullptr;
  if (is_tree && find_value(json, "tree") != nullptr) return read_answer_tree(json);
  return RecordReader(json, fields).read();
}

}  // namespace octet
