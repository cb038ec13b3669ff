// Questions about pictures, and their answers.
#include "infer/tasks/vqa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/base/error_of.h"
#include "unit/train/tiny_llava.h"

namespace octet::infer_vqa_test {
namespace {

using test::error_of;
using test::ScratchFolder;

TEST(Vqa, answers_are_compared_as_the_task_has_it) {
  const std::pair<const char*, const char*> cases[] = {{"The  Cat.", "cat"},
                                                       {"two", "2"},
                                                       {"1,000", "1000"},
                                                       {"3.5", "3.5"},
                                                       {"Yes, it is!", "yes it is"},
                                                       {"don't", "dont"},
                                                       {"none", "0"},
                                                       {"an apple\n", "apple"},
                                                       {"", ""},
                                                       {"a-b", "b"}};
  for (const auto& [answer, expected] : cases) EXPECT_EQ(vqa_answer(answer), expected) << answer;
  EXPECT_TRUE(is_right("Two dogs.", {.answers = {"cat", "2 dogs"}}));
  EXPECT_FALSE(is_right("", {.answers = {"cat"}}));
}

TEST(Vqa, questions_are_read_with_their_pictures) {
  const ScratchFolder folder;
  test::put_conversations(folder);
  const auto read = [&](const std::string& text) {
    return read_picture_questions(posix_files(), folder.put("q.jsonl", text));
  };
  const auto questions =
      read(R"({"image": "gray.png", "question": "Q?", "answer": "gray", "type": "color"})"
           "\n"
           R"({"images": ["gray.png", "gray.png"], "question": "R?", "answers": ["a", "b"]})");
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].pictures, (std::vector<std::string>{folder / "gray.png"}));
  EXPECT_EQ(questions[0].type, "color");
  EXPECT_EQ(questions[1].pictures.size(), 2U);
  EXPECT_EQ(questions[1].answers, (std::vector<std::string>{"a", "b"}));
  EXPECT_THAT(error_of([&] { read(R"({"image": "x.png", "question": "Q", "answer": "a"})"); }),
              testing::AllOf(testing::HasSubstr("q.jsonl:1"), testing::HasSubstr("x.png")));
  EXPECT_THAT(error_of([&] { read(R"({"image": "gray.png", "question": "Q"})"); }),
              testing::HasSubstr("'answer'"));
  EXPECT_THAT(error_of([&] { read(""); }), testing::HasSubstr("got none"));
  EXPECT_THAT(error_of([&] {
                read(R"({"image": "gray.png", "images": ["gray.png"], "question": "Q",)"
                     R"("answer": "a"})");
              }),
              testing::HasSubstr("expected 'image' or 'images', got both"));
  EXPECT_THAT(error_of([&] {
                read(R"({"image": "gray.png", "question": "Q", "answer": "a", "answers": ["b"]})");
              }),
              testing::HasSubstr("expected 'answer' or 'answers', got both"));
}

TEST(Vqa, keys_that_are_not_read_are_told) {
  const ScratchFolder folder;
  test::put_conversations(folder);
  std::string told;
  read_picture_questions(
      posix_files(),
      folder.put("q.jsonl", R"({"image": "gray.png", "question": "Q?", "answer": "a", "id": 1,)"
                            R"("choices": ["a", "b"], "hint": null})"),
      0, Log([&](LogLevel, const std::string& line) { told = line; }));
  EXPECT_THAT(told, testing::HasSubstr("keys that are not read: choices, id"));
}

}  // namespace
}  // namespace octet::infer_vqa_test
