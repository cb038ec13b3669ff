#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/json.h"
#include "infer/tasks/evaluate_tasks.h"
#include "infer/tasks/evaluations.h"
#include "infer/tasks/task.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_tasks_test {
namespace {

class Tasks : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) { scratch_.put(path, text); }
  void write_olmo(const std::string& task, const std::string& requests,
                  const std::string& variant = "rc_0shot") {
    write(
        task + "/" + variant + "/config.json",
        R"({"task_config": {"split": "validation", "num_shots": 0, "primary_metric": "acc_raw"}})");
    write(task + "/" + variant + "/requests.jsonl", requests);
  }
  TaskData read(const std::string& name, Convention convention = Convention::lm_eval,
                std::optional<int64_t> shots = {}) {
    return read_task({posix_files(), name, folder_, convention, shots});
  }
  TaskDocument document(const std::string& name, std::string doc) {
    std::erase(doc, '\n');  // a request a line
    write_olmo(name, R"({"doc_id": 0, "idx": 0, "label": 0, "doc": )" + doc + "}\n");
    return read(name).documents.at(0);
  }
  using Texts = std::vector<std::string>;
  static Texts texts(const TaskDocument& document) {
    Texts result;
    for (const TaskChoice& c : document.choices) {
      result.push_back(c.request.context + "|" + c.request.continuation);
    }
    return result;
  }
  const test::ScratchFolder scratch_;
  const std::string folder_ = scratch_.path();
};

TEST_F(Tasks, of_olmos_documents_have_lm_evals_prompts) {
  const auto arc =
      document("arc_easy", R"({"query": "Question: q?\nAnswer:", "choices": ["a", "bä"],
      "gold": 1})");
  EXPECT_EQ(texts(arc), (Texts{"Question: q?\nAnswer:| a", "Question: q?\nAnswer:| bä"}));
  EXPECT_EQ(arc.choices[1].n_characters, 2);
  EXPECT_EQ(arc.gold, 1);
  EXPECT_EQ(texts(document("openbookqa", R"({"query": "Question: the stem\nAnswer:",
      "choices": ["a"], "gold": 0})")),
            Texts{"the stem| a"});
  EXPECT_EQ(texts(document("piqa", R"({"goal": "g", "sol1": "s", "sol2": "t", "label": 1})")),
            (Texts{"Question: g\nAnswer:| s", "Question: g\nAnswer:| t"}));
  const auto sciq = document("sciq", R"({"question": "q", "support": " s", "correct_answer": "r",
      "distractor1": "x", "distractor2": "y", "distractor3": "z"})");
  EXPECT_EQ(texts(sciq)[3], "s\nQuestion: q\nAnswer:| r");
  EXPECT_EQ(sciq.gold, 3);
  const auto boolq = document("boolq", R"({"query": "p\nQuestion: q?\nAnswer:",
      "choices": ["yes", "no"], "gold": 0})");
  EXPECT_EQ(texts(boolq), (Texts{"p\nQuestion: q?\nAnswer:| no", "p\nQuestion: q?\nAnswer:| yes"}));
  EXPECT_EQ(boolq.gold, 1);
  EXPECT_EQ(texts(document("copa", R"({"premise": "It rained.", "choice1": "He wept.",
      "choice2": "No.", "question": "effect", "label": 1})")),
            (Texts{"It rained therefore| he wept.", "It rained therefore| no."}));
  EXPECT_EQ(texts(document("winogrande", R"({"sentence": "So _ won it.", "option1": "A",
      "option2": "B", "answer": "2"})")),
            (Texts{"So A| won it.", "So B| won it."}));
}

TEST_F(Tasks, in_olmos_convention_are_its_requests_but_the_second_ones) {
  const auto line = [](int id, int idx, const char* context, const char* continuation) {
    return fmt::format(R"({{"doc_id": {}, "idx": {}, "label": 1, "doc": {{}},)"
                       R"( "request": {{"context": "{}", "continuation": "{}"}}}})"
                       "\n",
                       id, idx, context, continuation);
  };
  write_olmo("sciq",
             line(0, 0, "Q", " a") + line(0, 1, "Q", " bc") + line(1000000, 0, "Answer:", " a"));
  const TaskData data = read("sciq", Convention::olmo);
  ASSERT_EQ(data.documents.size(), 1u);
  EXPECT_EQ(texts(data.documents[0]), (Texts{"Q| a", "Q| bc"}));
  EXPECT_EQ(data.documents[0].gold, 1);
  EXPECT_EQ(data.documents[0].choices[1].n_characters, 2);
  EXPECT_EQ(data.split, "validation");
  write_olmo("sciq", line(0, 0, "Q", " a"));
  EXPECT_EQ(test::error_of([&] { read("sciq", Convention::olmo); }),
            "[tasks] " + folder_ +
                "/sciq/rc_0shot/requests.jsonl: expected all choices of document 0 and the right "
                "one's number, got 1 choices and 1");
}

TEST_F(Tasks, with_files_of_their_own) {
  write("hellaswag/hellaswag_val_full.txt", "Ski: A man\n2\na\nb\nc\nd\n");
  const TaskData hellaswag = read("hellaswag");
  EXPECT_EQ(texts(hellaswag.documents.at(0))[2], "Ski: A man| c");
  EXPECT_EQ(hellaswag.documents[0].gold, 2);
  write("lambada/lambada_test.jsonl", R"({"text": "one two\nthree four"})");
  EXPECT_EQ(texts(read("lambada").documents.at(0)), Texts{"one two\nthree| four"});
  write("gsm8k/train.jsonl", R"({"question": "a", "answer": "b"})"
                             "\n");
  write("gsm8k/test.jsonl", R"({"question": "c", "answer": "d #### 5"})"
                            "\n");
  EXPECT_EQ(read("gsm8k", Convention::lm_eval, 1).documents.at(0).prompt,
            "Question: a\nAnswer: b\n\nQuestion: c\nAnswer:");
  write("svamp/SVAMP.json", R"([{"ID": "x", "Body": "B", "Question": "Q?", "Answer": 5.0}])");
  EXPECT_EQ(read("svamp").documents.at(0).prompt, "Question: B Q?\nAnswer:");
}

// NumGLUE's own kinds with a number, and rows of a question and an answer.
TEST_F(Tasks, of_numbers_take_the_problems_whose_answers_are_numbers) {
  write("numglue/NumGLUE_test.json", R"({"type": "Type_1", "question": "How many?", "answer": 12}
{"type": "Type_3", "question": "?", "Option1": "a", "Option2": "b", "answer": "Option 1"}
{"type": "Type_5", "passage": "P.", "question": "Q?", "answer": {"number": "1,500"}}
{"type": "Type_5", "passage": "P.", "question": "Who?", "answer": {"number": "", "spans": ["x"]}}
{"type": "Type_7", "statement1": "s", "statement2": "t", "options": "o", "answer": "neutral"}
{"type": "Type_8", "question": "E?", "answer": "-0.5"}
{"type": "Type_1", "question": "inf", "answer": "inf"}
{"question": "nan", "answer": "nan"}
)");
  const TaskData numglue = read("numglue");
  ASSERT_EQ(numglue.documents.size(), 3u);
  EXPECT_EQ(numglue.split, "test, 3 of 8 have numbers");
  EXPECT_EQ(numglue.score, TaskScore::last_number);
  EXPECT_EQ(numglue.documents[0].prompt, "Question: How many?\nAnswer:");
  EXPECT_EQ(numglue.documents[0].answer, "12");
  EXPECT_EQ(numglue.documents[1].prompt, "Question: P. Q?\nAnswer:");
  EXPECT_EQ(numglue.documents[1].answer, "1500");
  EXPECT_EQ(numglue.documents[2].id, "5");
  write("numglue/NumGLUE_test.json", R"({"type": "Type_9", "question": "q", "answer": 1})");
  EXPECT_EQ(test::error_of([&] { read("numglue"); }),
            "[tasks] numglue: expected a type from Type_1 to Type_8, got 'Type_9'");
  write("mathematica/mathematica.json", R"([{"question": "Solve 2*x = 4 for x.", "answer": "2"},
      {"problem": "Is 3 prime?", "answer": "True"}])");
  const TaskData mathematica = read("mathematica");
  ASSERT_EQ(mathematica.documents.size(), 1u);
  EXPECT_EQ(mathematica.documents[0].prompt, "Question: Solve 2*x = 4 for x.\nAnswer:");
  EXPECT_EQ(mathematica.documents[0].answer, "2");
  write("mathematica/mathematica.json", R"([{"question": "q", "answer": "True"}])");
  EXPECT_EQ(test::error_of([&] { read("mathematica"); }),
            "[tasks] " + folder_ +
                "/mathematica/mathematica.json: expected problems whose answers are numbers");
}

TEST_F(Tasks, mmlu_asks_by_letter_behind_examples_of_the_subject) {
  write("mmlu/dev/high_school_physics_dev.csv",
        "\"One, or\ntwo?\",a,\"b \"\"c\"\"\",d,e,B\r\nq2,1,2,3,4,D\n");
  write("mmlu/test/high_school_physics_test.csv", "\"q, 3\",5,6,7,8,C\n");
  write("mmlu/test/astronomy_test.csv", "q4,w,x,y,z,A");
  write("mmlu/dev/astronomy_dev.csv", "q5,w,x,y,z,A\nq6,w,x,y,z,A\n");
  const TaskData data = read("mmlu", Convention::lm_eval, 2);
  ASSERT_EQ(data.documents.size(), 2u);
  EXPECT_EQ(data.shots, 2);
  EXPECT_FALSE(data.has_norm);
  const TaskDocument& document = data.documents[1];
  EXPECT_EQ(document.id, "high_school_physics/0");
  EXPECT_EQ(document.gold, 2);
  EXPECT_EQ(texts(document)[2],
            "The following are multiple choice questions (with answers) about high school "
            "physics.\n\nOne, or\ntwo?\nA. a\nB. b \"c\"\nC. d\nD. e\nAnswer: B\n\n"
            "q2\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: D\n\nq, 3\nA. 5\nB. 6\nC. 7\nD. 8\nAnswer:| C");
  EXPECT_EQ(
      test::error_of([&] { read("mmlu"); }),
      "[tasks] " + folder_ + "/mmlu/dev/astronomy_dev.csv: expected at least 5 examples, got 2");
  write("mmlu/test/astronomy_test.csv", "q4,w,x,y,z,E\n");
  EXPECT_EQ(test::error_of([&] { read("mmlu", Convention::lm_eval, 0); }),
            "[tasks] " + folder_ +
                "/mmlu/test/astronomy_test.csv, row 1: expected a question, four choices and a "
                "letter from A to D, got 6 cells and 'E'");
}

TEST_F(Tasks, mmlus_rows_stand_behind_a_mark_and_blank_lines) {
  write("mmlu/dev/law_dev.csv", "");
  write("mmlu/test/law_test.csv", "\xEF\xBB\xBF\"q1\",1,2,3,4,A\r\n\r\nq2,1,2,3,4,B\n\n\n");
  const TaskData data = read("mmlu", Convention::lm_eval, 0);
  ASSERT_EQ(data.documents.size(), 2u);
  EXPECT_EQ(texts(data.documents[0])[0],
            "The following are multiple choice questions (with answers) about law.\n\n"
            "q1\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:| A");
  write("mmlu/test/law_test.csv", "q1,1,2,3,4,A\n\"q2\"x,1,2,3,4,B\n");
  EXPECT_EQ(test::error_of([&] { read("mmlu", Convention::lm_eval, 0); }),
            "[tasks] " + folder_ +
                "/mmlu/test/law_test.csv, row 2: expected a comma or the end of the line behind a "
                "quote that ends a cell, got 0x78 at byte 17");
}

TEST_F(Tasks, that_cannot_be_read_say_why) {
  EXPECT_EQ(test::error_of([&] { read("hellasvag"); }),
            "--tasks: expected a task, got 'hellasvag'; the nearest is hellaswag");
  EXPECT_EQ(test::error_of([&] { read("lambada"); }),
            "[tasks] lambada: expected one of lambada/lambada_test.jsonl, lambada_test.jsonl in '" +
                folder_ + "', got none");
  EXPECT_EQ(test::error_of([&] { read("piqa", Convention::lm_eval, 5); }),
            "--shots: piqa expected 0 in lm-eval's convention, as there are no examples to show, "
            "got 5");
  write("hellaswag/hellaswag_val_full.txt", "Ski: A man\n7\na\nb\nc\nd\n");
  EXPECT_EQ(test::error_of([&] { read("hellaswag"); }),
            "[tasks] " + folder_ +
                "/hellaswag/hellaswag_val_full.txt:1: expected a text, a number from 0 to 3 and "
                "four endings, got '7'");
}

TEST(Answers, hold_numbers) {
  EXPECT_EQ(strict_number("so\n#### -1,234.50. x #### 7"), "-1,234.50.");
  EXPECT_EQ(strict_number("####5 #### x"), "");
  EXPECT_EQ(flexible_number("he has $18 and 7, so 3,000 left."), "3,000");
  EXPECT_EQ(flexible_number("it is -5"), "-5");
  EXPECT_EQ(flexible_number("none."), "");
  EXPECT_EQ(plain_number("x #### $1,234."), "1234");
}

TEST(Shares, have_the_standard_error_of_a_mean) {
  EXPECT_DOUBLE_EQ(share_of(3, 10).value, 0.3);
  EXPECT_DOUBLE_EQ(share_of(3, 10).error, std::sqrt(0.3 * 0.7 / 9));
  const PairedDifference d = paired_difference({1, 2, 6}, {0, 2, 4});
  EXPECT_DOUBLE_EQ(d.mean, 1);
  EXPECT_NEAR(d.error, 1 / std::sqrt(3.0), 1e-12);
}

TEST(Shares, of_one_document_have_no_standard_error) {
  EXPECT_EQ(share_of(1, 1).value, 1);
  EXPECT_TRUE(std::isnan(share_of(1, 1).error));
  EXPECT_TRUE(std::isnan(paired_difference({2}, {1}).error));
}

TEST(PairedDifferences, of_one_document_are_no_independent_ones) {
  const std::vector<double> a = {1, 1, 1, -1, -1, 3}, zeros(6);
  // Sums of deviations from 2/3: 1 of three, -10/3 of two, 7/3 of one.
  const PairedDifference d = paired_difference(a, zeros, {0, 0, 0, 1, 1, 2});
  EXPECT_DOUBLE_EQ(d.mean, 2.0 / 3);
  EXPECT_NEAR(d.error, std::sqrt(3.0 / 2 * (1 + 100.0 / 9 + 49.0 / 9)) / 6, 1e-12);
  EXPECT_GT(d.error, 1.2 * paired_difference(a, zeros).error);
  EXPECT_DOUBLE_EQ(paired_difference(a, zeros, {0, 1, 2, 3, 4, 5}).error,
                   paired_difference(a, zeros).error);
  EXPECT_TRUE(std::isnan(paired_difference(a, zeros, std::vector<int64_t>(6)).error));
}

TEST(ScoredTokens, are_cut_where_the_context_ends) {
  const auto bytes = byte_tokenizer();
  using Ids = std::vector<int32_t>;
  const ScoredTokens moved = scored_tokens(*bytes, {"ab ", "c"}, 100);
  EXPECT_EQ(moved.context, (Ids{'a', 'b'}));
  EXPECT_EQ(moved.continuation, (Ids{' ', 'c'}));
  const ScoredTokens cut = scored_tokens(*bytes, {"abcdef", "xy"}, 4);
  EXPECT_EQ(cut.context, (Ids{'d', 'e', 'f'}));
  EXPECT_EQ(cut.continuation, (Ids{'x', 'y'}));
  const ScoredTokens longer = scored_tokens(*bytes, {"ab", "vwxyz"}, 3);
  EXPECT_EQ(longer.context, (Ids{'w'}));
  EXPECT_EQ(longer.continuation, (Ids{'x', 'y', 'z'}));
}

// A tokenizer of letters in which "b" behind an "a" is one token with it.
std::string joining_tokenizer() {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "|": 4},
             "merges": ["a b"]}, "decoder": {"type": "ByteLevel"}, "pre_tokenizer":
             {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}})";
}

TEST_F(Tasks, a_token_of_context_and_continuation_leaves_the_continuation_its_own) {
  write("tokenizer.json", joining_tokenizer());
  const auto tokenizer = make_tokenizer(posix_files(), folder_ + "/tokenizer.json");
  using Ids = std::vector<int32_t>;
  const ScoredTokens spans = scored_tokens(*tokenizer, {"ba", "b"}, 100);
  EXPECT_EQ(spans.context, (Ids{1, 0}));
  EXPECT_EQ(spans.continuation, (Ids{1}));
  const ScoredTokens more = scored_tokens(*tokenizer, {"ba", "ba"}, 100);  // b ab a
  EXPECT_EQ(more.context, (Ids{1, 0}));
  EXPECT_EQ(more.continuation, (Ids{0}));
}

// Made by tools/make_pair_goldens.py.
TEST(ScoredTokens, are_those_of_lm_eval) {
  const std::string tiny = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/tokenizers/";
  const Json golden = parse_json(posix_files().read_text(tiny + "pairs.json"), "pairs.json");
  using Ids = std::vector<int32_t>;
  for (const Json& entry : golden.at("cases")) {
    const std::string vocabulary = entry.at("vocabulary");
    const test::ScratchFolder folder;
    folder.put(vocabulary.ends_with(".model") ? "tokenizer.model" : "tokenizer.json",
               posix_files().read_text(tiny + vocabulary));
    folder.put("tokenizer_config.json", entry.at("config").dump());
    const auto tokenizer = make_tokenizer(posix_files(), folder.path());
    for (size_t i = 0; i < golden.at("pairs").size(); ++i) {
      const Json &pair = golden.at("pairs")[i], &ids = entry.at("ids")[i];
      const ScoredTokens got = scored_tokens(*tokenizer, {pair[0], pair[1]}, 100);
      // lm-eval fails where a part has no token.
      const auto equals = [&](const Ids& part, const Json& wanted) {
        return wanted.empty() ? !part.empty() : part == wanted.get<Ids>();
      };
      EXPECT_TRUE(equals(got.context, ids[0])) << vocabulary << pair << ids;
      EXPECT_TRUE(equals(got.continuation, ids[1])) << vocabulary << pair << ids;
    }
  }
}

TEST_F(Tasks, requests_that_cannot_be_asked_name_task_and_document) {
  write("tokenizer.json", joining_tokenizer());
  const auto tokenizer = make_tokenizer(posix_files(), folder_ + "/tokenizer.json");
  write("lambada/lambada_test.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"a c\"}\n");
  const TaskQuery query{.files = posix_files(), .name = "lambada", .folder = folder_};
  const std::string error =
      test::error_of([&] { prepare_task(query, *tokenizer, {.longest = 16}); });
  EXPECT_TRUE(error.starts_with("[tasks] lambada, document 1: [tokenizer] ")) << error;
  write("lambada/lambada_test.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"a a|\"}\n");
  prepare_task(query, *tokenizer, {.longest = 16, .vocab = 5});
  EXPECT_EQ(test::error_of([&] { prepare_task(query, *tokenizer, {.longest = 16, .vocab = 4}); }),
            "[tasks] lambada, document 1: expected tokens below the model's vocabulary of 4, got "
            "4: the tokenizer has more tokens than the model");
}

class RequestLogTest : public Tasks {};

TEST_F(RequestLogTest, knows_what_it_was_told_and_refuses_another_model) {
  const std::string path = join_path(folder_, "requests.jsonl");
  const OrderedJson request = {{"task", "t"}, {"recipe", "fp32"}, {"context", "a"}};
  OrderedJson other = request;
  other["recipe"] = "bf16";
  RequestLog(posix_files(), path, "m").add(request, {{"log_likelihood", -1.5}});
  std::ofstream(path, std::ios::app) << "{\"cut sho";
  RequestLog log(posix_files(), path, "m");
  ASSERT_NE(log.find(request), nullptr);
  EXPECT_EQ((*log.find(request))["log_likelihood"], -1.5);
  EXPECT_EQ(log.find(other), nullptr);
  log.add(other, {{"log_likelihood", -2}});
  EXPECT_NE(RequestLog(posix_files(), path, "m").find(other), nullptr);
  EXPECT_EQ(
      test::error_of([&] { RequestLog(posix_files(), path, "n"); }),
      "--requests: " + path + ": expected answers of this model, n, got \"m\"; take a new file");
}

TEST_F(RequestLogTest, evaluations_of_a_step_replace_older_ones) {
  const OrderedJson a = {{"step", 1}, {"task", "x"}, {"acc", 0.5}};
  const OrderedJson b = {{"step", 1}, {"task", "x"}, {"acc", 0.6}};
  const OrderedJson c = {{"step", 2}, {"task", "x"}, {"acc", 0.7}};
  add_evaluations(posix_files(), folder_, {a});
  add_evaluations(posix_files(), folder_, {b, c});
  EXPECT_EQ(read_evaluations(posix_files(), folder_), (std::vector<OrderedJson>{b, c}));
}

}  // namespace
}  // namespace octet::infer_tasks_test
