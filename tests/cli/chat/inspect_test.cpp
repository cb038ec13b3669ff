// octet data inspect as a user calls it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "unit/base/scratch_folder.h"

namespace octet::chat_inspect_test {
namespace {

struct Result {
  int code = -1;
  std::string out, err;
};

Result inspect(const test::ScratchFolder& folder, const std::string& arguments) {
  const std::string line = std::string(OCTET_PROGRAM) + " data inspect " + arguments + " > " +
                           (folder / "out") + " 2> " + (folder / "err");
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, posix_files().read_text(folder / "out"),
          posix_files().read_text(folder / "err")};
}

std::string config_for(const test::ScratchFolder& folder, const std::string& records) {
  const std::string data = folder.put("x.jsonl", records);
  return folder.put("run.yaml",
                    "model: {hidden: 32, layers: 1, heads: 2, ffn: 32, seq: 40}\n"
                    "data: {train: [" +
                        data + "], chat: {template: plain}}\nout: " + (folder / "run") + "\n");
}

TEST(DataInspect, shows_masks_lengths_and_what_was_dropped) {
  const test::ScratchFolder folder;
  const std::string config = config_for(
      folder,
      "{\"prompt\": \"a\\u001b[2J\", \"completion\": \"b\"}\n{\"prompt\": 1}\n"
      "{\"prompt\": \"this one is too long for a row\", \"completion\": \"of forty\"}\n");
  const Result result = inspect(folder, config + " --n 1");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("User: a\\u001b[2J\nAssistant: \u27e6b\n\u27e7"), std::string::npos)
      << result.out;
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_NE(result.out.find("dropped        1: no fields that are known ("), std::string::npos);
  EXPECT_NE(result.out.find("x.jsonl:2: prompt)"), std::string::npos);
  EXPECT_NE(result.out.find("too long       1 of 2 for rows of 40"), std::string::npos);
  EXPECT_EQ(result.out.find("this one is too long"), std::string::npos);  // --n 1
  EXPECT_FALSE(posix_files().exists(folder / "run"));

  const auto json = nlohmann::json::parse(inspect(folder, config + " --json").out);
  EXPECT_EQ(json["documents"], 2);
  EXPECT_EQ(json["chat"]["dropped"][0]["records"], 1);
  const auto& sample = json["samples"][0];
  EXPECT_EQ(sample["ids"].size(), sample["mask"].size());
  EXPECT_EQ(sample["mask"].back(), 1);
  EXPECT_EQ(sample["mask"].front(), 0);
}

// A template that rewrites earlier turns makes a sample of each answer: of one conversation still.
TEST(DataInspect, counts_conversations_and_their_samples) {
  const test::ScratchFolder folder;
  const std::string data = folder.put(
      "x.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
      R"( {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})"
      "\n"
      R"({"prompt": "e", "completion": "f"})"
      "\n");
  const std::string chat =
      folder.put("chat.jinja",
                 "{% for m in messages %}{{ m.role }}: "
                 "{{ m.content if loop.last or m.role == 'user' else '-' }}\n{% endfor %}"
                 "{% if add_generation_prompt %}assistant: {% endif %}");
  const std::string config = folder.put(
      "run.yaml", "model: {hidden: 32, layers: 1, heads: 2, ffn: 32, seq: 80}\ndata: {train: [" +
                      data + "], chat: {template: " + chat + "}}\n");
  const Result result = inspect(folder, config + " --n 0");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("documents      2, "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("samples        3 of 2 records"), std::string::npos) << result.out;
}

TEST(DataInspect, names_that_are_no_utf8_are_escaped) {
  const test::ScratchFolder folder;
  folder.put("data/a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  folder.put("data/b\xff.json", "{\"prompt\": ");
  folder.put("data/c\xfe.txt", "text");
  const std::string config = folder.put(
      "run.yaml", "model: {hidden: 32, layers: 1, heads: 2, ffn: 32, seq: 40}\ndata: {train: [" +
                      (folder / "data") + "], chat: {template: plain}}\n");
  const Result result = inspect(folder, config + " --json");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto chat = nlohmann::json::parse(result.out)["chat"];
  const auto place = [](const nlohmann::json& list) {
    return list[0]["places"][0].get<std::string>();
  };
  EXPECT_NE(place(chat["dropped"]).find("data/b\\xff.json:1"), std::string::npos);
  EXPECT_NE(place(chat["unread_files"]).find("data/c\\xfe.txt"), std::string::npos);
}

// Two rows a pair, as they are trained.
TEST(DataInspect, pairs_of_answers_are_rows) {
  const test::ScratchFolder folder;
  const std::string config = config_for(
      folder, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"margin\": 2}\n");
  const std::string flags = " --set train.loss=orpo --set data.val_fraction=0";
  const Result result = inspect(folder, config + flags + " --json");
  EXPECT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["samples"], 1);
  EXPECT_EQ(json["rows_per_sample"], 2);
  EXPECT_GT(json["sample_bytes"], 0);
  EXPECT_EQ(json["first"][0]["rows"][1][1], (nlohmann::json{{"text", "c\n"}, {"trained", true}}));
  EXPECT_NE(result.err.find("a key that nothing is made of: 'margin'"), std::string::npos)
      << result.err;
}

// Of a text that an epoch reads more than once.
TEST(DataInspect, labels_of_text_follow_its_weight) {
  const test::ScratchFolder folder;
  const std::string data = folder.put("x.txt", "one two three fou");
  const std::string config = folder.put(
      "run.yaml",
      "model: {hidden: 32, layers: 1, heads: 2, ffn: 32, seq: 8}\ndata: {train: [{path: " + data +
          ", weight: 3}], val_fraction: 0}\n");
  const Result result = inspect(folder, config + " --json");
  EXPECT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["labels"], 3 * 16);
  EXPECT_EQ(json["mix"][0]["weight"], 3);
}

TEST(DataInspect, data_without_a_record_ends_with_3) {
  const test::ScratchFolder folder;
  const Result result = inspect(folder, config_for(folder, "{\"a\": 1}\n"));
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.err.find("got no record"), std::string::npos) << result.err;
}

TEST(DataInspect, text_has_documents) {
  const test::ScratchFolder folder;
  const std::string data = folder.put("x.txt", "one two three");
  const std::string config = folder.put(
      "run.yaml", "model: {hidden: 32, layers: 1, heads: 2, ffn: 32, seq: 8}\ndata: {train: [" +
                      data + "], val_fraction: 0}\n");
  const Result result = inspect(folder, config);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("documents      1, 13 tokens"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("o\u27e6ne two t\u27e7"), std::string::npos) << result.out;
}

// Text is read in windows, and one of them is shown, not all of a file.
TEST(DataInspect, shows_a_window_of_a_text) {
  const test::ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "line " + std::to_string(i) + "\n";
  const std::string config = folder.put(
      "run.yaml", "model: {hidden: 32, layers: 1, heads: 2, ffn: 32, seq: 64}\ndata: {train: [" +
                      folder.put("x.txt", text) + "]}\nout: " + (folder / "run") + "\n");
  const Result result = inspect(folder, config);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find(" trained, the first 65 of them\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("line 1\n"), std::string::npos);
  EXPECT_EQ(result.out.find("line 12\n"), std::string::npos);
  EXPECT_EQ(result.out.find("does not fit"), std::string::npos);
  const auto json = nlohmann::json::parse(inspect(folder, config + " --json").out);
  EXPECT_GT(json["samples"][0]["ids"].size(), 10000u);  // for scripts it is whole
}

}  // namespace
}  // namespace octet::chat_inspect_test
