// octet chat as a user calls it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace octet::chat_test {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Chat : public testing::Test {
 protected:
  Chat() : folder_(testing::TempDir() + "octet_chat_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_ + "/model");
  }
  ~Chat() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }

  // `octet chat render ARGUMENTS`: its exit code; out_ and err_.
  int render(const std::string& arguments) {
    const std::string out = folder_ + "/out", err = folder_ + "/err";
    const std::string line =
        std::string(OCTET_PROGRAM) + " chat render " + arguments + " > " + out + " 2> " + err;
    const int status = std::system(line.c_str());
    out_ = read_file(out);
    err_ = read_file(err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string contexts() const {
    return write("contexts.json",
                 R"([{"name": "one", "messages": [{"role": "user", "content": "hé"}],
                      "add_generation_prompt": true, "kwargs": {"x": 1}},
                     {"name": "two", "messages": [{"role": "assistant", "content": "yo"}]}])");
  }

  std::string folder_, out_, err_;
};

TEST_F(Chat, renders_the_text_exactly) {
  const std::string source = write("t.jinja", "{{ messages[0].content }}{{ x }}\n\n");
  ASSERT_EQ(render("--template " + source + " --context " + contexts() + " --name one"), 0) << err_;
  EXPECT_EQ(out_, "hé1\n");
}

// Null fields are not there, as in training.
TEST_F(Chat, leaves_out_what_says_nothing) {
  const std::string source = write(
      "t.jinja", "{{ messages[0].content is defined }} {{ messages[0].tool_calls is defined }}");
  const std::string nulls = write(
      "nulls.json", R"({"messages": [{"role": "assistant", "content": null, "tool_calls": []}]})");
  ASSERT_EQ(render("--template " + source + " --context " + nulls), 0) << err_;
  EXPECT_EQ(out_, "False False");
  const std::string texts = write(
      "texts.json", R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]})");
  ASSERT_EQ(render("--template " + source + " --context " + texts), 0) << err_;
  EXPECT_EQ(out_, "True True");
}

TEST_F(Chat, reasoning_has_all_its_names) {
  const std::string source = write(
      "t.jinja", "{{ messages[0].reasoning_content }}, {{ messages[0].thinking is defined }}");
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const std::string context =
        write("c.json", std::string(R"({"messages": [{"role": "assistant", "content": "a", ")") +
                            name + R"(": "why"}]})");
    ASSERT_EQ(render("--template " + source + " --context " + context), 0) << err_;
    EXPECT_EQ(out_, "why, True") << name;
  }
}

TEST_F(Chat, has_built_in_templates_and_masks) {
  ASSERT_EQ(render("--template chatml --context " + contexts() + " --name two"), 0) << err_;
  EXPECT_EQ(out_, "<|im_start|>assistant\nyo<|im_end|>\n");
  ASSERT_EQ(render("--mask --template chatml --context " + contexts() + " --name two"), 0) << err_;
  EXPECT_EQ(out_, "{\"utf8_spans\":[[22,34]]}\n");
}

TEST_F(Chat, takes_template_and_tokens_from_a_model_folder) {
  write("model/tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
            "chat_template": [{"name": "default", "template": "{{ bos_token }}d{{ eos_token }}"},
                              {"name": "tool_use", "template": "tools"}]})");
  const std::string one = " --context " + contexts() + " --name one";
  ASSERT_EQ(render("--template " + folder_ + "/model" + one), 0) << err_;
  EXPECT_EQ(out_, "<s>d</s>");
  const std::string tools = write("tools.json", R"({"messages": [], "tools": [{}]})");
  const std::string config = folder_ + "/model/tokenizer_config.json";
  ASSERT_EQ(render("--template " + config + " --context " + tools), 0) << err_;
  EXPECT_EQ(out_, "tools");
  write("model/chat_template.jinja", "j{{ eos_token }}");
  ASSERT_EQ(render("--template " + folder_ + "/model" + one), 0) << err_;
  EXPECT_EQ(out_, "j</s>");
}

TEST_F(Chat, tells_the_time_that_it_is_given) {
  const std::string source = write("t.jinja", "{{ strftime_now('%A %d %B %Y %H:%M %j') }}");
  ASSERT_EQ(render("--template " + source + " --context " + contexts() +
                   " --name one --now 2024-07-26T12:34:56"),
            0);
  EXPECT_EQ(out_, "Friday 26 July 2024 12:34 208");
  EXPECT_EQ(render("--template " + source + " --context " + contexts() + " --name one --now x"), 2);
}

TEST_F(Chat, fails_with_3_and_the_templates_own_words) {
  const std::string source = write("t.jinja", "{{ raise_exception('no\nsuch role') }}");
  EXPECT_EQ(render("--template " + source + " --context " + contexts() + " --name one"), 3);
  EXPECT_EQ(out_, "");
  EXPECT_NE(err_.find("the template refuses: no such role"), std::string::npos) << err_;
  EXPECT_EQ(err_.find('\n'), err_.size() - 1) << err_;  // one line, whatever the template says
  const std::string broken = write("b.jinja", "a\n{% if %}");
  EXPECT_EQ(render("--template " + broken + " --context " + contexts() + " --name one"), 3);
  EXPECT_NE(err_.find("line 2"), std::string::npos) << err_;
  EXPECT_EQ(render("--template " + source + " --context " + contexts() + " --name three"), 3);
  EXPECT_EQ(render("--template " + folder_ + "/absent --context " + contexts() + " --name one"), 2);
  const std::string bad = write("bad.json", "{");
  EXPECT_EQ(render("--template chatml --context " + bad), 3);
}

}  // namespace
}  // namespace octet::chat_test
