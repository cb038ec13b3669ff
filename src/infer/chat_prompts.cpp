#include "infer/chat_prompts.h"

#include <ctime>
#include <span>

#include "base/error.h"
#include "data/chat_messages.h"
#include "data/chat_pictures.h"

namespace octet {
namespace {

std::tm clock_of_today() {
  const std::time_t now = std::time(nullptr);
  std::tm clock{};
  localtime_r(&now, &clock);
  return clock;
}

}  // namespace

ChatPrompts::ChatPrompts(const ChatTemplates& templates, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      plain_(templates.plain),
      with_tools_(templates.with_tools),
      plain_contents_(contents_of(plain_, clock_of_today())),
      tools_contents_(contents_of(with_tools_, clock_of_today())) {
  find_end();
}

std::string ChatPrompts::render(OrderedJson context, bool with_prompt) const {
  context["add_generation_prompt"] = with_prompt;
  if (context.contains("messages")) normalize_messages(context["messages"]);
  const bool has_tools = context.contains("tools") && !context["tools"].is_null();
  const auto contents = has_tools ? tools_contents_ : plain_contents_;
  if (contents == ChatEncoder::Contents::parts_alone && context.contains("messages"))
    split_into_parts(context["messages"], /*mark=*/"");
  return (has_tools ? with_tools_ : plain_).render(context, clock_of_today());
}

std::vector<int32_t> ChatPrompts::tokens(const std::string& rendered) const {
  return tokenizer_.encode(rendered, {.special = SpecialText::parse});
}

void ChatPrompts::find_end() {
  constexpr std::string_view kSaid = "abcxyz";
  const OrderedJson messages = {{{"role", "user"}, {"content", "a"}},
                                {{"role", "assistant"}, {"content", kSaid}}};
  std::string behind;
  try {
    const std::string text = render({{"messages", messages}}, false);
    const size_t at = text.rfind(kSaid);
    if (at == std::string::npos) return;
    behind = text.substr(at + kSaid.size());
  } catch (const Error&) {
    return;  // a template that takes no such conversation
  }
  const size_t first = behind.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return;
  const auto ids = tokenizer_.encode(behind.substr(first), {.special = SpecialText::parse});
  const std::string token = ids.empty() ? "" : tokenizer_.decode(std::span(ids).first(1));
  if (!token.empty() && tokenizer_.special_id(token) == ids.front()) {
    end_token_ = ids.front();
  } else {
    end_text_ = behind.substr(0, behind.find_last_not_of(" \t\r\n") + 1);
  }
}

}  // namespace octet
