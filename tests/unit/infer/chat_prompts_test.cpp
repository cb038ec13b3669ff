// Texts of conversations by templates that take texts, lists of parts, or lists alone.
#include "infer/chat_prompts.h"

#include <gtest/gtest.h>

namespace octet::infer_chat_prompts_test {
namespace {

constexpr const char* kOfTexts =
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }};\n{% endfor %}";
constexpr const char* kOfParts =
    "{% for m in messages %}<{{ m['role'] }}>{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %};\n{% endfor %}";

TEST(ChatPrompts, give_each_template_the_contents_that_it_takes) {
  const auto tokenizer = byte_tokenizer();
  const OrderedJson messages = {{{"role", "user"}, {"content", "Hello"}}};
  for (const char* text : {kOfTexts, kOfParts}) {
    const ChatTemplateSource source{.text = text, .where = "test"};
    const ChatPrompts chat({.name = "test", .plain = source, .with_tools = source}, *tokenizer);
    EXPECT_EQ(chat.takes_parts_alone(), text == kOfParts);
    EXPECT_EQ(chat.render({{"messages", messages}}), "<user>Hello;\n");
    EXPECT_EQ(chat.end_text(), ";");
  }
}

TEST(ChatPrompts, tell_templates_messages_as_training_does) {
  const auto tokenizer = byte_tokenizer();
  const ChatTemplateSource source{
      .text = "{{ messages[0].tool_calls is defined }} {{ messages[0].reasoning_content }}",
      .where = "test"};
  const ChatPrompts chat({.name = "test", .plain = source, .with_tools = source}, *tokenizer);
  const OrderedJson messages = {
      {{"role", "assistant"}, {"content", "a"}, {"tool_calls", nullptr}, {"thinking", "b"}}};
  EXPECT_EQ(chat.render({{"messages", messages}}), "False b");
}

}  // namespace
}  // namespace octet::infer_chat_prompts_test
