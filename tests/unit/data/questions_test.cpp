#include "data/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_questions_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using testing::ElementsAre;

TEST(Questions, answers_are_found_by_characters_and_bad_questions_are_left_out) {
  const ScratchFolder folder;
  const std::string path = folder.put("q.json", R"({"data": [{"paragraphs": [
    {"context": "né à Paris", "qas": [
      {"id": "a", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 5},
                                                    {"text": "à Paris", "answer_start": 3}]},
      {"id": "b", "question": "Who?", "is_impossible": true, "answers": []},
      {"id": "c", "question": "When?", "answers": [{"text": "Paris", "answer_start": 6}]},
      {"id": "d", "answers": []}]},
    {"qas": []}]}]})");
  std::vector<std::string> messages;
  const Log log([&](LogLevel, const std::string& message) { messages.push_back(message); });
  LeftOut left_out(log);
  const Questions questions = read_questions(posix_files(), {path}, AnswerPlaces::read, left_out);
  ASSERT_EQ(questions.all.size(), 2u);
  const Question& first = questions.all[0];
  ASSERT_EQ(first.answers.size(), 2u);
  EXPECT_EQ(first.answers[0].begin, 7);
  EXPECT_EQ(first.answers[0].end, 12);
  EXPECT_EQ(first.answers[1].begin, 4);
  EXPECT_TRUE(questions.all[1].answers.empty());
  EXPECT_EQ(questions.all[1].place, path + ": question 'b'");
  EXPECT_THAT(messages, ElementsAre("[data] " + path +
                                        ": question 'c' is left out: expected a question with "
                                        "its answers, got no 'Paris' at 6 of the context",
                                    "[data] " + path +
                                        ": question 'd' is left out: expected a question with "
                                        "its answers, got no text 'question'",
                                    "[data] " + path +
                                        ": a paragraph is left out: expected a context, got "
                                        "no text 'context'"));
}

TEST(Questions, where_answers_stand_does_not_matter_to_their_score) {
  const ScratchFolder folder;
  const std::string path = folder.put("q.json", R"({"data": [{"paragraphs": [{"context": "a b",
      "qas": [{"id": "a", "question": "Q", "answers": [{"text": "b", "answer_start": 0}]}]}]}]})");
  const Log log;
  LeftOut left_out(log);
  EXPECT_EQ(read_questions(posix_files(), {path}, AnswerPlaces::read, left_out).all.size(), 0u);
  EXPECT_EQ(read_questions(posix_files(), {path}, AnswerPlaces::unread, left_out).all.size(), 1u);
}

TEST(Questions, files_that_hold_none_are_refused) {
  const ScratchFolder folder;
  const Log log;
  LeftOut left_out(log);
  EXPECT_EQ(error_of(
                [&] {
                  read_questions(posix_files(), {folder.put("q.json", "{\"rows\": []}")},
                                 AnswerPlaces::read, left_out);
                },
                folder.path()),
            "[data] DIR/q.json: expected SQuAD's JSON (data, paragraphs, qas), got no list 'data'");
}

// Made by transformers' way with the package `tokenizers` (tools/make_word_piece_goldens.py).
TEST(AnswerWindows, are_cut_and_labelled_as_transformers_does) {
  const std::string folder = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/word_pieces/";
  const Json golden = parse_json(posix_files().read_text(folder + "spans.json"), "spans.json");
  int n_windows = 0, n_answers = 0;
  for (const auto& [name, expected] : golden.at("tokenizers").items()) {
    const auto tokenizer = make_tokenizer(posix_files(), folder + name + ".json");
    const auto context = tokenizer->encode_spans(golden.at("context").get<std::string>());
    const auto question = tokenizer->encode(golden.at("question").get<std::string>());
    for (const Json& size : expected.at("windows")) {
      const auto windows = answer_windows(tokenizer->text_template(), question, context,
                                          {.seq = size.at("seq"), .stride = size.at("stride")});
      ASSERT_EQ(windows.size(), size.at("rows").size()) << name << " " << size.at("seq");
      for (size_t i = 0; i < windows.size(); ++i) {
        const Json& row = size.at("rows")[i];
        EXPECT_EQ(windows[i].row.ids, row.at("ids").get<std::vector<int32_t>>());
        EXPECT_EQ(windows[i].row.types, row.at("types").get<std::vector<int32_t>>());
        for (size_t a = 0; a < golden.at("answers").size(); ++a) {
          const Json& answer = golden.at("answers")[a];
          const AnswerPlace place = answer_place(windows[i], context, answer[0], answer[1]);
          EXPECT_EQ(Json({place.first, place.last}), row.at("labels")[a]) << name << " " << a;
          n_answers += place.first > 0 ? 1 : 0;
        }
        ++n_windows;
      }
    }
  }
  EXPECT_GT(n_windows, 12);
  EXPECT_GT(n_answers, 30);
}

// `tokenizers` with direction "left": the first window is the end.
TEST(AnswerWindows, go_back_from_the_end_where_texts_lose_their_starts) {
  const ScratchFolder folder;
  const std::string path = folder.put("tokenizer.json", R"({"normalizer": null,
      "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [],
      "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4, "c": 5, "d": 6,
                          "e": 7, "f": 8, "g": 9}}})");
  const auto tokenizer = make_tokenizer(posix_files(), path);
  const auto context = tokenizer->encode_spans("c d e f g");
  const auto windows = answer_windows(tokenizer->text_template(), tokenizer->encode("a"), context,
                                      {.seq = 7, .stride = 1, .cut = CutSide::start});
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_THAT(windows[0].row.ids, ElementsAre(1, 3, 2, 7, 8, 9, 2));
  EXPECT_THAT(windows[1].row.ids, ElementsAre(1, 3, 2, 5, 6, 7, 2));
  EXPECT_EQ(answer_place(windows[0], context, 6, 9), (AnswerPlace{4, 5}));  // "f g"
  EXPECT_EQ(answer_place(windows[1], context, 6, 9), (AnswerPlace{0, 0}));
  const auto asked = answer_windows(tokenizer->text_template(), tokenizer->encode("a b c d"),
                                    context, {.seq = 7, .cut = CutSide::start});
  EXPECT_THAT(asked[0].row.ids, ElementsAre(1, 5, 6, 2, 8, 9, 2));
}

// A normalizer that joins characters, NFC, says of no token where it stands.
TEST(AnswerWindows, a_context_without_places_is_left_out) {
  const ScratchFolder folder;
  const std::string path = folder.put("tokenizer.json", R"({"normalizer": {"type": "NFC"},
      "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [],
      "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "café": 3, "a": 4}}})");
  const auto tokenizer = make_tokenizer(posix_files(), path);
  Questions questions{.contexts = {"a caf\u00e9", "a cafe\u0301"}, .all = {}};
  for (size_t i = 0; i < 2; ++i)
    questions.all.push_back({.id = "q", .text = "a", .context = i, .place = "F: question 'q'"});
  std::vector<std::string> messages;
  const Log log([&](LogLevel, const std::string& message) { messages.push_back(message); });
  LeftOut left_out(log);
  const QuestionWindows all = window_questions(questions, *tokenizer, {.seq = 8}, left_out);
  ASSERT_EQ(all.windows[0].size(), 1u);
  EXPECT_THAT(all.windows[0][0].row.ids, ElementsAre(1, 4, 2, 4, 3, 2));
  EXPECT_TRUE(all.windows[1].empty());
  EXPECT_THAT(messages, ElementsAre("[data] F: question 'q' is left out: [tokenizer] expected a "
                                    "text of which each token is a part, got one that the "
                                    "normalizer or the pre-tokenizer changes as a whole"));
}

}  // namespace
}  // namespace octet::data_questions_test
