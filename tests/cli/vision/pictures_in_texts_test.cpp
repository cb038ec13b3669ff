// A tiny model that sees pictures, as a user trains, asks and exports it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/encoders/encoder_run.h"
#include "unit/train/tiny_llava.h"

namespace octet::vision_pictures_in_texts_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;

Outcome train(const ScratchFolder& folder, const std::string& more) {
  test::put_conversations(folder, 8);
  const std::string path = folder.put("llava.yaml", test::llava_yaml(folder, "bf16"));
  return run_program(folder, "train " + path + " --quiet " + more);
}

// The same question about pictures that differ.
void put_questions(const ScratchFolder& folder) {
  folder.put("questions.jsonl",
             R"({"image": "gray.png", "question": "Q?", "answer": "Gray.", "type": "one"})"
             "\n"
             R"({"image": "full_color.jpeg", "question": "Q?", "answers": ["red", "blue"]})"
             "\n"
             R"({"images": ["full_color.jpeg", "gray.png"], "question": "Q?", "answer": "both"})"
             "\n");
}

TEST(PicturesInTexts, are_learned_by_heart_asked_for_and_exported) {
  const ScratchFolder folder;
  const Outcome trained =
      train(folder, "--set train.steps=110 --set optim.lr=8.0e-3 --set train.save_every=110");
  ASSERT_EQ(trained.code, 0) << trained.err;
  put_questions(folder);
  const std::string tasks =
      " --json --max-new-tokens 8 --tasks vqa:" + (folder / "questions.jsonl");
  const auto accuracy = [&](const std::string& model) {
    const Outcome outcome = run_program(folder, "eval --model " + model + tasks);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  const json rows = accuracy(folder / "run");
  ASSERT_EQ(rows.size(), 3U) << rows.dump();
  EXPECT_EQ(rows[0].at("type"), "all");
  EXPECT_EQ(rows[0].at("n"), 3);
  EXPECT_EQ(rows[0].at("acc"), 1.0) << rows.dump();
  EXPECT_EQ(rows[1].at("type"), "one");
  EXPECT_EQ(rows[2].at("type"), "other");
  const Outcome answered = run_program(folder, "generate --model " + (folder / "run") +
                                                   " --image " + (folder / "full_color.jpeg") +
                                                   " --chat --prompt 'Q?' --max-tokens 8");
  EXPECT_EQ(answered.out, "blue\n") << answered.err;
  const Outcome exported =
      run_program(folder, "convert " + (folder / "run") + " " + (folder / "out"));
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(accuracy(folder / "out")[0].at("acc"), 1.0);
  const std::string processor = folder / "out/processor_config.json";
  EXPECT_EQ(json::parse(posix_files().read_text(processor)).at("patch_size"), 8);
  const std::pair<std::string, std::string> cases[] = {
      {"--image gray.png --prompts x.txt", "--image: expected it with --prompt"},
      {"--image " + (folder / "none.png") + " --prompt Q", "none.png"},
      {"--image " + (folder / "gray.png") + " --prompt '<image> <image>'",
       "expected a picture for each <image> of the prompt, 2, got 1"},
      {"--image " + (folder / "gray.png") + " --prompt Q --max-tokens 999",
       "--max-tokens: expected at most"}};
  for (const auto& [arguments, error] : cases) {
    const Outcome refused =
        run_program(folder, "generate --model " + (folder / "run") + " " + arguments);
    EXPECT_NE(refused.code, 0) << arguments;
    EXPECT_THAT(refused.err, testing::HasSubstr(error)) << arguments;
  }
}

TEST(PicturesInTexts, go_on_with_the_same_bits) {
  const ScratchFolder folder;
  test::put_conversations(folder);
  test::expect_same_bits_resumed(folder, test::llava_yaml(folder, "coat"));
}

TEST(PicturesInTexts, end_the_run_by_record_and_path_where_one_is_broken) {
  const ScratchFolder folder;
  test::put_conversations(folder);
  folder.put("gray.png", "\x89PNG\r\n\x1a\n");
  const std::string path = folder.put("llava.yaml", test::llava_yaml(folder, "bf16"));
  const Outcome outcome = run_program(folder, "train " + path + " --quiet");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, testing::ContainsRegex("chat\\.jsonl:[0-9]+: '.*gray\\.png'"));
}

}  // namespace
}  // namespace octet::vision_pictures_in_texts_test
