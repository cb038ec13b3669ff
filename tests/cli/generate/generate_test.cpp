// octet generate and octet eval --tasks as a user calls them, with a small trained model.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program_run.h"

namespace {

using nlohmann::json;
const std::string kData = OCTET_TEST_DATA "/data";

class Generate : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kData + "/weights/stories260K")) {
      GTEST_SKIP() << "the model's folder is not there (CMake variable OCTET_TEST_DATA)";
    }
    model_ = "--model " + kData + "/weights/stories260K --tokenizer " + kData +
             "/tokenizers/tok512/tok512.bin --quiet ";
  }

  std::string file(const std::string& name, const std::string& text) const {
    return folder_.put(name, text);
  }
  std::string read(const std::string& name) const {
    return octet::posix_files().read_text(folder_ / name);
  }
  // The exit code; what the program wrote is in out and err.
  int run(const std::string& arguments, const std::string& input = "/dev/null") {
    octet::test::Outcome outcome = octet::test::run_program(folder_, arguments, input);
    out = std::move(outcome.out), err = std::move(outcome.err);
    return outcome.code;
  }
  // The rows of two recipes on copa.
  json compared(const std::string& flags) {
    EXPECT_EQ(
        run("eval " + model_ + "--task-data " + kData + "/eval_ft --tasks copa --json " + flags), 0)
        << err;
    return json::parse(out);
  }
  octet::test::ScratchFolder folder_;
  std::string model_, out, err;
};

TEST_F(Generate, texts_of_a_file_are_the_same_in_every_batch) {
  const std::string prompts = file("p.jsonl",
                                   "\"Once upon a time\"\n{\"prompt\": \"The dog\", \"seed\": 5}\n"
                                   "{\"prompt\": \"Lily and Ben went to the park\"}\n");
  const std::string call = "generate " + model_ + "--temperature 0.9 --top-k 40 --max-tokens 20 ";
  ASSERT_EQ(run(call + "--prompts " + prompts + " --batch 1"), 0) << err;
  const std::string one = out;
  ASSERT_EQ(run(call + "--prompts " + prompts + " --batch 64"), 0) << err;
  EXPECT_EQ(out, one);
  std::istringstream lines(one);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const json first = json::parse(line);
  ASSERT_EQ(run(call + "--prompt 'Once upon a time' --json"), 0) << err;
  EXPECT_EQ(json::parse(out)["text"], first["text"]);
}

TEST_F(Generate, a_stop_text_ends_the_answer_and_is_not_part_of_it) {
  const std::string call = "generate " + model_ + "--prompt 'Once upon a time' --max-tokens 60 ";
  ASSERT_EQ(run(call + "--json"), 0) << err;
  const std::string whole = json::parse(out)["completion"];
  const std::string stop = whole.substr(20, 6);
  ASSERT_EQ(run(call + "--json --stop nothing-like-it --stop '" + stop + "'"), 0) << err;
  const json cut = json::parse(out);
  EXPECT_EQ(cut["completion"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(cut["stop"], "text");
}

TEST_F(Generate, a_conversation_reads_a_pipe) {
  const std::string lines = file("lines", "Hello\nAnd then?\n");
  ASSERT_EQ(run("generate " + model_ + "--chat --max-tokens 8 --json", lines), 0) << err;
  std::istringstream answers(out);
  int n = 0;
  for (std::string line; std::getline(answers, line); ++n) {
    EXPECT_EQ(json::parse(line)["role"], "assistant");
  }
  EXPECT_EQ(n, 2);
}

TEST_F(Generate, log_probabilities_have_the_bits_of_the_training_forward) {
  const std::string text = kData + "/text/tinystories/tinystories_train_first2MiB.txt";
  for (const char* recipe : {"fp32", "bf16"}) {
    ASSERT_EQ(run("eval " + model_ + "--data " + text + " --check-generation --max-tokens 600 " +
                  "--seq 48 --json --recipe " + recipe),
              0)
        << err;
    const json row = json::parse(out)[0];
    EXPECT_EQ(row["tokens"], 600);
    EXPECT_EQ(row["equal"], 600);
    EXPECT_EQ(row["largest_difference"], 0);
  }
}

TEST_F(Generate, tasks_are_scored_and_resumed) {
  const std::string call = "eval " + model_ + "--task-data " + kData +
                           "/eval_ft --tasks hellaswag,lambada,copa --limit 5 --json --requests " +
                           (folder_ / "requests.jsonl") + " ";
  ASSERT_EQ(run(call + "--batch 1"), 0) << err;
  const std::string rows = out, requests = read("requests.jsonl");
  const json first = json::parse(rows)[0];
  EXPECT_EQ(first["task"], "hellaswag");
  EXPECT_EQ(first["convention"], "lm-eval");
  EXPECT_EQ(first["split"], "validation");
  EXPECT_EQ(first["n"], 5);
  const double p = first["acc"];
  EXPECT_NEAR(first["stderr"].get<double>(), std::sqrt(p * (1 - p) / 4), 1e-12);
  EXPECT_EQ(std::count(requests.begin(), requests.end(), '\n'), 5 * (4 + 1 + 2));
  // Cut in the middle of a line: only the rest is run.
  file("requests.jsonl", requests.substr(0, requests.size() / 2));
  ASSERT_EQ(run(call + "--batch 8"), 0) << err;
  EXPECT_EQ(out, rows);
  EXPECT_EQ(read("requests.jsonl").size(), requests.size());
}

TEST_F(Generate, recipes_are_compared_request_by_request) {
  const json rows = compared("--limit 6 --recipe fp32,bf16");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_FALSE(rows[0].contains("difference"));
  EXPECT_NEAR(rows[1]["difference"].get<double>(),
              rows[1]["log_likelihood"].get<double>() - rows[0]["log_likelihood"].get<double>(),
              1e-9);
  EXPECT_NE(rows[1]["difference"], 0);
}

TEST_F(Generate, recipes_accuracies_are_compared_document_by_document) {
  const json rows = compared("--limit 80 --recipe fp32,hif8");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_FALSE(rows[0].contains("acc_difference"));
  const double difference = rows[1]["acc"].get<double>() - rows[0]["acc"].get<double>();
  EXPECT_NEAR(rows[1]["acc_difference"].get<double>(), difference, 1e-12);
  // Questions that both answer alike are no part of the error.
  const double unpaired =
      std::hypot(rows[0]["stderr"].get<double>(), rows[1]["stderr"].get<double>());
  EXPECT_GT(rows[1]["stderr_acc_difference"].get<double>(), 0);
  EXPECT_LT(rows[1]["stderr_acc_difference"].get<double>(), unpaired);
}

TEST_F(Generate, says_in_one_line_what_is_wrong) {
  EXPECT_EQ(run("eval " + model_ + "--tasks hellaswag"), 2);
  EXPECT_EQ(err, "octet: --task-data: expected the folder of the tasks' files, got none\n");
  EXPECT_EQ(run("eval " + model_ + "--tasks gsm8k --task-data " + folder_.path()), 3);
  EXPECT_EQ(err, "octet: [tasks] gsm8k: expected one of gsm8k/train.jsonl, train.jsonl in '" +
                     folder_.path() + "', got none\n");
  EXPECT_EQ(run("generate " + model_ + "--prompts " + (folder_ / "none")), 3) << err;
}

}  // namespace
