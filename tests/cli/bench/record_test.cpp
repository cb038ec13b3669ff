// octet bench record: the steps and the losses are those of octet train.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/program_run.h"
#include "cli/train/tiny_run.h"

namespace octet::test::bench_record_test {
namespace {

using nlohmann::json;

// Validation losses of the run by step, as its metrics have them.
std::map<int, double> losses_of_run(const ScratchFolder& folder, const std::string& config,
                                    const std::string& recipe) {
  const std::string out = folder / recipe;
  const Outcome outcome =
      run_program(folder, "train " + config + " --set recipe=" + recipe + " --set out=" + out);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::map<int, double> losses;
  for (const json& line : metrics(out)) {
    if (line.contains("val_loss")) losses[line["step"].get<int>()] = line["val_loss"].get<double>();
  }
  return losses;
}

TEST(BenchRecord, stops_at_the_loss_where_the_run_has_it) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const std::map<int, double> fp32 = losses_of_run(folder, config, "fp32");
  ASSERT_GT(fp32.at(2), fp32.at(4));
  ASSERT_GT(fp32.at(4), fp32.at(6));
  const double asked = (fp32.at(2) + fp32.at(4)) / 2;  // reached at step 4
  const std::string csv = folder / "record.csv";
  const Outcome outcome = run_program(
      folder, fmt::format("bench record {} --recipes fp32,coat --loss {} --every 2 --csv {} --json",
                          config, asked, csv));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json rows = json::parse(outcome.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["recipe"], "fp32");
  EXPECT_EQ(rows[0]["steps"], 4);
  EXPECT_NEAR(rows[0]["loss"].get<double>(), fp32.at(4), 5e-5);
  EXPECT_GT(rows[0]["seconds"].get<double>(), 0);
  EXPECT_EQ(rows[0]["tokens_a_step"], 2 * 24);
  // Energy, where this process may read the processors' counters.
  EXPECT_TRUE(rows[0]["joules"] == "not counted" || rows[0]["joules"].get<double>() >= 0);
  const int steps = rows[1]["steps"].get<int>();
  EXPECT_NEAR(rows[1]["loss"].get<double>(), losses_of_run(folder, config, "coat").at(steps), 5e-5);
  EXPECT_FALSE(posix_files().exists(folder / "run"));

  // Rows are added behind those that are there.
  const auto lines = [&] { return std::ranges::count(posix_files().read_text(csv), '\n'); };
  EXPECT_EQ(lines(), 3);
  const std::string unreachable =
      fmt::format("bench record {} --recipes fp32 --loss 0.001 --csv {} --json", config, csv);
  const Outcome over = run_program(folder, unreachable);
  ASSERT_EQ(over.code, 0) << over.err;
  const json row = json::parse(over.out)[0];
  EXPECT_EQ(row["seconds"], "not reached");
  EXPECT_EQ(row["steps"], 6);
  EXPECT_NEAR(row["loss"].get<double>(), fp32.at(6), 5e-5);
  EXPECT_EQ(lines(), 4);
}

TEST(BenchRecord, asks_for_a_loss_and_refuses_flags_without_a_meaning) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"record " + config, "--loss: expected the validation loss to reach, got none"},
      {"record " + config + " --loss 2 --rounds 3", "--rounds: expected "},
      {"step " + config + " --loss 2", "--loss: expected record, got step"},
      {"record " + config + " --loss 2 --set data.val_fraction=0",
       "data.val: expected validation text, got none"}};
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = run_program(folder, "bench " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
  const Outcome nowhere =
      run_program(folder, "bench record " + config + " --loss 0.1 --csv " + folder / "no/rows.csv");
  EXPECT_EQ(nowhere.code, 3) << nowhere.err;
  EXPECT_NE(nowhere.err.find("cannot write '"), std::string::npos) << nowhere.err;
  EXPECT_EQ(nowhere.err.find("bench: "), std::string::npos) << nowhere.err;
}

}  // namespace
}  // namespace octet::test::bench_record_test
