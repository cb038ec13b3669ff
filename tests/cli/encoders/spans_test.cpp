// BERT learns where in a text an answer stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/encoders/encoder_run.h"

namespace octet::encoders_spans_test {
namespace {

using test::encoder_yaml;
using test::Outcome;
using test::ScratchFolder;
using test::train_encoder;
using test::val_losses;
using testing::HasSubstr;

// "the model" stands at one of three places, or nowhere.
std::string squad(int n) {
  nlohmann::json questions = nlohmann::json::array();
  const std::string contexts[] = {"the model runs the scale", "the scale runs the model",
                                  "runs the model scale", "the scale runs the scale"};
  for (int i = 0; i < n; ++i) {
    const std::string& context = contexts[i * 5 % 7 % 4];
    const size_t at = context.find("model");
    nlohmann::json question = {{"id", fmt::to_string(i)}, {"question", "what runs"}};
    question["is_impossible"] = at == context.npos;
    question["answers"] = nlohmann::json::array();
    if (at != context.npos)
      question["answers"].push_back({{"text", "model"}, {"answer_start", at}});
    questions.push_back({{"context", context}, {"qas", {question}}});
  }
  return nlohmann::json{{"data", {{{"paragraphs", questions}}}}}.dump();
}

std::string span_yaml(const ScratchFolder& folder, const std::string& json) {
  return encoder_yaml(folder, ", head: span, seq: 16",
                      ", val_fraction: 0.2, train: [" + folder.put("squad.json", json) + "]");
}

TEST(SpanTexts, a_bert_learns_where_answers_stand) {
  const ScratchFolder folder;
  const Outcome outcome =
      train_encoder(folder, span_yaml(folder, squad(200)), "--set train.steps=120");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(test::metrics(folder / "run").front().at("loss").get<double>(), 2);  // log 16 = 2.77
  EXPECT_LT(val_losses(folder / "run").back(), 0.3);
  EXPECT_GT(test::metrics(folder / "run").back().at("val_exact").get<double>(), 0.9);
}

// Windows of a long context, of whose tokens two in a row are in both.
// The questions are those of training, and one more whose answer the model cannot know.
TEST(SpanTexts, what_was_learnt_is_scored_as_squad_does) {
  const ScratchFolder folder;
  ASSERT_EQ(train_encoder(folder, span_yaml(folder, squad(200)), "--set train.steps=120").code, 0);
  auto asked = nlohmann::json::parse(squad(20));
  auto& last = asked.at("data")[0]
                   .at("paragraphs")
                   .emplace_back(nlohmann::json{{"context", "the model runs the scale"},
                                                {"qas", nlohmann::json::array()}});
  last.at("qas").push_back({{"id", "other"},
                            {"question", "what runs"},
                            {"answers", {{{"text", "The model runs."}, {"answer_start", 0}}}}});
  const std::string file = folder.put("asked.json", asked.dump());
  const std::string model = "eval --json --batch 4 --model " + (folder / "run");
  const Outcome outcome =
      test::run_program(folder, model + " --recipe fp32,fp8_linear --tasks spans:" + file);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("task"), "spans:" + file);
  EXPECT_EQ(rows[0].at("n"), 21);
  EXPECT_NEAR(rows[0].at("exact").get<double>(), 20. / 21, 1e-9);
  // "model" beside "model runs", of which it has one word of two.
  EXPECT_NEAR(rows[0].at("f1").get<double>(), (20 + 2. / 3) / 21, 1e-9);
  EXPECT_TRUE(rows[1].contains("exact_difference"));
  EXPECT_THAT(posix_files().read_text(folder / "run" + "/evaluations.jsonl"),
              HasSubstr(R"("exact":)"));
  const Outcome kept = test::run_program(folder, model + " --limit 3 --tasks spans:" + file +
                                                     " --predictions " + (folder / "answers.json"));
  ASSERT_EQ(kept.code, 0) << kept.err;
  const auto answers = nlohmann::json::parse(posix_files().read_text(folder / "answers.json"));
  EXPECT_EQ(answers, nlohmann::json({{"0", "model"}, {"1", "model"}, {"2", ""}}));
}

// 20 tokens in windows of 6, of which 1 or 3 are in the window before, too.
TEST(SpanTexts, windows_of_an_evaluation_share_as_many_tokens_as_the_stride_says) {
  const ScratchFolder folder;
  ASSERT_EQ(train_encoder(folder, span_yaml(folder, squad(20)), "--set train.steps=1").code, 0);
  const std::string five = "the model runs the scale";
  nlohmann::json long_one = nlohmann::json::parse(squad(1));
  long_one["data"][0]["paragraphs"][0]["context"] = five + " " + five + " " + five + " " + five;
  const std::string file = folder.put("long.json", long_one.dump());
  const auto n_rows = [&](const std::string& stride) {
    const Outcome outcome =
        test::run_program(folder, "eval --json --quiet --seq 12 --model " + (folder / "run") +
                                      " --data " + file + " --stride " + stride);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at(0).at("rows").get<int>();
  };
  EXPECT_EQ(n_rows("1"), 4);
  EXPECT_EQ(n_rows("3"), 6);
}

TEST(SpanTexts, a_task_without_file_or_head_is_refused) {
  const ScratchFolder folder;
  const std::string file = folder.put("asked.json", squad(4));
  ASSERT_EQ(train_encoder(folder, span_yaml(folder, squad(20)), "--set train.steps=1").code, 0);
  const auto error = [&](const std::string& tasks) {
    const Outcome outcome =
        test::run_program(folder, "eval --model " + (folder / "run") + " --tasks " + tasks);
    EXPECT_NE(outcome.code, 0);
    return outcome.err;
  };
  EXPECT_THAT(error("spans"), HasSubstr("--tasks: expected spans:FILE alone"));
  EXPECT_THAT(error("spans:" + file + ",hellaswag"), HasSubstr("--tasks: expected spans:FILE"));
  EXPECT_THAT(error("spans:" + (folder / "none.json")), HasSubstr("none.json"));
  const std::string classes = encoder_yaml(
      folder, ", head: classes, seq: 16",
      ", train: [" + folder.put("t.jsonl", R"({"text": "the model", "label": 1})") + "]");
  ASSERT_EQ(train_encoder(folder, classes,
                          "--set train.steps=1 --set data.val_fraction=0 --set train.eval_every=0 "
                          "--set out=" +
                              (folder / "other"))
                .code,
            0);
  EXPECT_THAT(
      test::run_program(folder, "eval --model " + (folder / "other") + " --tasks spans:" + file)
          .err,
      HasSubstr("expected a model that says where answers stand (model.head: span)"));
}

TEST(SpanTexts, a_run_that_goes_on_comes_to_the_bits_of_one_that_was_not_stopped) {
  const ScratchFolder folder;
  const std::string yaml = span_yaml(folder, squad(30));
  test::expect_same_bits_resumed(folder, yaml, "--set model.seq=8 --set data.stride=2 ");
}

TEST(SpanTexts, a_bad_question_is_told_and_nothing_else_is_lost) {
  const ScratchFolder folder;
  auto json = nlohmann::json::parse(squad(9));
  auto& paragraphs = json.at("data")[0].at("paragraphs");
  paragraphs[2].at("qas")[0]["is_impossible"] = false;
  paragraphs[2].at("qas")[0]["answers"] = {{{"text", "nowhere"}, {"answer_start", 3}}};
  const Outcome outcome = test::run_program(
      folder, "train " + folder.put("encoder.yaml", span_yaml(folder, json.dump())) +
                  " --set train.steps=1 --set data.val_fraction=0");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("squad.json: question '2' is left out: expected a question with its "
                        "answers, got no 'nowhere' at 3 of the context"));
  EXPECT_THAT(outcome.err, HasSubstr("8 training and 0 validation samples"));
}

TEST(SpanTexts, files_without_questions_are_refused) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& json, const std::string& sets = "") {
    const Outcome outcome = train_encoder(folder, span_yaml(folder, json), sets);
    EXPECT_NE(outcome.code, 0);
    return outcome.err;
  };
  EXPECT_THAT(error("{\"rows\": []}"),
              HasSubstr("squad.json: expected SQuAD's JSON (data, paragraphs, qas), got no list"));
  EXPECT_THAT(error("{\"data\": [}"), HasSubstr("squad.json"));
  EXPECT_THAT(error(squad(0)), HasSubstr("squad.json': expected a question at least, got none"));
  EXPECT_THAT(error(squad(9), "--set data.tokenizer=bytes"),
              HasSubstr("[tokenizer] expected one that says where in a text its tokens stand"));
}

}  // namespace
}  // namespace octet::encoders_spans_test
