#include <gtest/gtest.h>

#include "text/chat_template.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::text_find_template_test {
namespace {

using test::error_of;
using test::ScratchFolder;

bool has(const ScratchFolder& folder) {
  return has_chat_template(posix_files(), folder.path());
}

TEST(FindChatTemplate, reads_what_stands_beside_a_length_without_limit) {
  const ScratchFolder folder;
  folder.put("tokenizer_config.json",
             R"({"model_max_length": 1000000000000000019884624838656, "eos_token": "</s>",
                 "x": [NaN, 1e999, "\ud800"], "chat_template": "hello"})");
  EXPECT_TRUE(has(folder));
  const ChatTemplateSource source = find_chat_template(posix_files(), folder.path(), false);
  EXPECT_EQ(source.text, "hello");
  EXPECT_EQ(source.special_tokens["eos_token"], "</s>");
}

TEST(FindChatTemplate, there_is_none_only_where_there_is_none) {
  const ScratchFolder folder;
  EXPECT_FALSE(has(folder));
  EXPECT_FALSE(has_chat_template(posix_files(), folder / "absent"));
  EXPECT_FALSE(has_chat_template(posix_files(), ""));
  folder.put("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_FALSE(has(folder));
  folder.put("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_FALSE(has(folder));
  folder.put("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_TRUE(has(folder));
  EXPECT_NE(
      error_of([&] { find_chat_template(posix_files(), folder.path(), false); }).find("'default'"),
      std::string::npos);
  folder.put("tokenizer_config.json", R"({"chat_template": "x",)");
  EXPECT_EQ(error_of([&] { has(folder); }, folder.path()),
            "[json] DIR/tokenizer_config.json: expected JSON, got a mistake at byte 23");
  folder.put("chat_template.jinja", "{% broken");
  EXPECT_TRUE(has(folder));
}

// As in transformers' processors.
TEST(FindChatTemplate, that_of_a_processor_s_file_goes_before_all_others) {
  const ScratchFolder folder;
  folder.put("processor_config.json", R"({"chat_template": null})");
  EXPECT_FALSE(has(folder));
  folder.put("processor_config.json", R"({"chat_template": "of the processor"})");
  EXPECT_TRUE(has(folder));
  folder.put("chat_template.jinja", "of the file");
  const ChatTemplateSource source = find_chat_template(posix_files(), folder.path(), false);
  EXPECT_EQ(source.text, "of the processor");
}

}  // namespace
}  // namespace octet::text_find_template_test
