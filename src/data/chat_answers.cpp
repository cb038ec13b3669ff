#include "data/chat_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/chat_records.h"
#include "data/text_files.h"

namespace octet {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// An answer as the template renders it last, behind the prompt of the messages before it.
struct RenderedAnswer {
  size_t message = 0;
  std::string prompt, text;  // the text begins with the messages before it, as the prompt does
  bool extends_prompt() const { return text.starts_with(prompt); }
};

// The length of the longest end of what was said that the text begins with.
size_t overlap(std::string_view said, std::string_view text) {
  for (size_t n = std::min(said.size(), text.size()); n > 0; --n)
    if (text.starts_with(said.substr(said.size() - n))) return n;
  return 0;
}

class Answers {
 public:
  Answers(const ChatTemplate& chat, const OrderedJson& context,
          const std::vector<size_t>& untrained, const std::tm& clock)
      : chat_(chat), context_(context), clock_(clock) {
    const OrderedJson& messages = context["messages"];
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i]["role"] != "assistant") continue;
      all_.push_back(i);
      is_trained_.push_back(std::ranges::find(untrained, i) == untrained.end());
    }
  }

  AnswerTexts read() {
    whole_.text = chat_.render(context_, clock_);
    chat_.has_generation() ? read_blocks() : read_prefixes();
    if (!result_.texts.empty()) return std::move(result_);
    if (result_.left_out.empty())
      bad_record("nothing would be trained: the template marks no answer");
    bad_record("nothing would be trained: " + result_.left_out.front().why);
  }

 private:
  void leave_out(size_t message, const std::string& why) {
    result_.left_out.push_back({message, why});
  }

  void add_whole() {
    if (!whole_.spans.empty()) result_.texts.push_back(std::move(whole_));
  }

  void read_blocks() {
    const ByteSpans spans = chat_.assistant_spans(context_, clock_);
    const bool are_answers = spans.size() == all_.size();
    if (!are_answers && std::ranges::find(is_trained_, false) != is_trained_.end()) {
      bad_record("answers that are not trained, where the template's blocks are not one an answer");
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      const size_t message = are_answers ? all_[i] : all_.empty() ? 0 : all_.back();
      if (are_answers && !is_trained_[i]) continue;
      if (spans[i].first == spans[i].second) {
        leave_out(message, "the template marks no answer");
        continue;
      }
      whole_.spans.push_back(spans[i]);
      whole_.messages.push_back(message);
    }
    add_whole();
  }

  // Finds out if one text shows all answers as they are generated.
  void read_prefixes() {
    std::vector<RenderedAnswer> answers;
    bool is_one_text = true;
    for (size_t i = 0; i < all_.size(); ++i) {
      RenderedAnswer answer;
      answer.message = all_[i];
      try {
        answer.prompt = chat_.render_prefix(context_, clock_, all_[i], true);
        answer.text = chat_.render_prefix(context_, clock_, all_[i] + 1, false);
      } catch (const jinja::BudgetExceeded&) {
        throw;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::bad_data) throw;
        if (is_trained_[i]) leave_out(all_[i], error.what());
        is_one_text = false;
        continue;
      }
      is_one_text = is_one_text && answer.extends_prompt() && whole_.text.starts_with(answer.text);
      if (is_trained_[i]) answers.push_back(std::move(answer));
    }
    for (const RenderedAnswer& answer : answers) is_one_text ? add_span(answer) : add_text(answer);
    result_.are_apart = !is_one_text;
    if (is_one_text) add_whole();
  }

  void add_span(const RenderedAnswer& answer) {
    if (answer.text.size() == answer.prompt.size())
      return leave_out(answer.message, "the template adds nothing for an answer");
    whole_.spans.emplace_back(answer.prompt.size(), answer.text.size());
    whole_.messages.push_back(answer.message);
  }

  void add_text(const RenderedAnswer& answer) {
    std::string added;
    if (answer.extends_prompt()) {
      added = answer.text.substr(answer.prompt.size());
    } else if (const auto generated = behind_prompt(answer)) {
      added = *generated;
    } else {
      return leave_out(answer.message,
                       "what the template makes of an answer cannot be told: neither the prompt "
                       "nor the answer begins what it adds");
    }
    if (added.empty()) return leave_out(answer.message, "the template adds nothing for an answer");
    const size_t begin = answer.prompt.size();
    result_.texts.push_back({.text = answer.prompt + added,
                             .spans = {{begin, begin + added.size()}},
                             .messages = {answer.message}});
  }

  // A prompt that goes on with what rendered answers leave out, "<think>\n": what the assistant
  // said stands behind it all the same. An answer that itself begins with that goes on there, with
  // the thought that the template would strip.
  std::optional<std::string> behind_prompt(const RenderedAnswer& answer) {
    const OrderedJson& message = context_["messages"][answer.message];
    const auto content = message.find("content");
    const bool is_text = content != message.end() && content->is_string();
    const std::string_view said =
        is_text ? stripped(content->get_ref<const std::string&>(), kBlanks) : std::string_view();
    const std::string_view text = answer.text;
    // The content may itself begin as the rest of the prompt does.
    const size_t differs = common_prefix(answer.prompt, text);
    size_t begin = differs;
    for (size_t n = 1; n <= std::min(differs, said.size()); ++n)
      if (text.substr(differs - n).starts_with(said)) begin = differs - n;
    const std::string_view rest = text.substr(begin);
    const size_t n_said = overlap(said, rest);
    if (begin == 0 || (n_said == 0 && !said.empty())) return std::nullopt;
    const std::string prompt_end = answer.prompt.substr(begin);
    const std::string_view opening = stripped(prompt_end, kBlanks);
    if (!opening.empty() && said.starts_with(opening) && n_said < said.size()) {
      std::string_view thought = said.substr(opening.size());
      if (prompt_end.ends_with('\n') && thought.starts_with('\n')) thought.remove_prefix(1);
      return std::string(thought).append(rest.substr(n_said));
    }
    result_.prompt_end = prompt_end;
    return std::string(rest);
  }

  const ChatTemplate& chat_;
  const OrderedJson& context_;
  const std::tm& clock_;
  std::vector<size_t> all_;  // messages of the assistant
  std::vector<bool> is_trained_;
  AnswerText whole_;
  AnswerTexts result_;
};

}  // namespace

AnswerTexts answer_texts(const ChatTemplate& chat, const OrderedJson& context,
                         const std::vector<size_t>& untrained, const std::tm& clock) {
  return Answers(chat, context, untrained, clock).read();
}

}  // namespace octet
