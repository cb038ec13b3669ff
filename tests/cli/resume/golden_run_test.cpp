// tests/fixtures/run-1.0* are runs that format version 1.0 left after step 3 of 6, and are never
// written again: every later version goes on from them. run-1.0 is a Llama in coat that sums three
// micro-batches; run-1.0-fast a GPT-2 in coat-fast, with histories, kept quantized weights, and
// masters and a moment that round stochastically.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/hash.h"
#include "cli/train/tiny_run.h"
#include "io/manifest.h"

namespace octet::resume_golden_run_test {
namespace {

using test::ScratchFolder;

int run_in(const ScratchFolder& folder, const std::string& arguments) {
  const std::string command = "cd '" + folder.path() + "' && '" + OCTET_PROGRAM +
                              "' </dev/null >out.txt 2>err.txt " + arguments;
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void copy_run(const ScratchFolder& folder, const std::string& name) {
  std::filesystem::copy(OCTET_SOURCE_DIR "/tests/fixtures/" + name, folder.path(),
                        std::filesystem::copy_options::recursive);
}

// With the losses of the version that began it. Other machines' exponentials differ in the last
// bits.
void expect_continued(const std::string& name, const std::vector<double>& losses) {
  const ScratchFolder folder;
  copy_run(folder, name);
  ASSERT_EQ(run_in(folder, "train run/config.yaml --resume --quiet --isa scalar --threads 1"), 0)
      << posix_files().read_text(folder / "err.txt");
  const auto lines = test::metrics(folder / "run");
  ASSERT_EQ(lines.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(lines[i].at("loss").get<double>(), losses[i], 1e-4) << i;
}

TEST(GoldenRun, of_version_1_0_is_continued) {
  expect_continued("run-1.0", {5.545953750610352, 5.492081165313721, 5.392588138580322,
                               5.316102981567383, 5.247805595397949, 5.213450908660889});
}

TEST(GoldenRun, of_version_1_0_with_histories_is_continued) {
  expect_continued("run-1.0-fast", {5.547776222229004, 5.501667022705078, 5.401411056518555,
                                    5.322177886962891, 5.276850700378418, 5.233762741088867});
}

// Its manifest records no configuration, but config.yaml of the folder does.
TEST(GoldenRun, of_version_1_0_is_held_to_its_configuration) {
  const ScratchFolder folder;
  copy_run(folder, "run-1.0");
  folder.put("run.yaml", posix_files().read_text(folder / "run/config.yaml"));
  const auto refused = [&](const std::string& set) {
    EXPECT_EQ(run_in(folder, "train run.yaml --resume --quiet --set " + set), 2) << set;
    return posix_files().read_text(folder / "err.txt");
  };
  EXPECT_EQ(refused("model.rope_theta=500"),
            "octet: [resume] model.rope_theta: expected 10000 as in the checkpoint, got 500\n");
  EXPECT_EQ(refused("model.tied=true"),
            "octet: [resume] model.tied: expected false as in the checkpoint, got true\n");
  EXPECT_TRUE(posix_files().read_text(folder / "run/config.yaml") ==
              posix_files().read_text(folder / "run.yaml"));
}

// The curve to 0 that it was begun with reaches it at the last step; that of a new run does not.
TEST(GoldenRun, of_version_1_0_keeps_its_curve_of_the_learning_rate) {
  const ScratchFolder folder;
  copy_run(folder, "run-1.0");
  std::string config = posix_files().read_text(folder / "run/config.yaml");
  config.replace(config.find("final_lr: 0.1"), 13, "final_lr: 0  ");
  folder.put("run/config.yaml", config);
  const std::string train = "train run/config.yaml --quiet ";
  ASSERT_EQ(run_in(folder, train + "--resume"), 0) << posix_files().read_text(folder / "err.txt");
  EXPECT_EQ(test::metrics(folder / "run").back().at("lr"), 0.0);
  EXPECT_NE(posix_files().read_text(folder / "run/config.yaml").find("schedule_version: 1"),
            std::string::npos);
  folder.put("new.yaml", config);
  ASSERT_EQ(run_in(folder, "train new.yaml --quiet --set out=new --set optim.warmup=0"), 0);
  const auto lines = test::metrics(folder / "new");
  EXPECT_EQ(lines.front().at("lr"), 0.005);
  EXPECT_GT(lines.back().at("lr"), 0.0);
}

TEST(GoldenRun, of_another_length_is_told_how_its_rate_jumps_and_how_to_keep_it) {
  const ScratchFolder folder;
  copy_run(folder, "run-1.0");
  const std::string resume = "train run/config.yaml --quiet --resume --set train.steps=";
  ASSERT_EQ(run_in(folder, resume + "6"), 0);
  EXPECT_EQ(posix_files().read_text(folder / "err.txt"), "");
  std::filesystem::copy(folder / "run", folder / "kept", std::filesystem::copy_options::recursive);
  ASSERT_EQ(run_in(folder, resume + "12"), 0);
  const std::string keep = "--set optim.schedule=constant --set optim.lr=0.0005";
  EXPECT_NE(posix_files()
                .read_text(folder / "err.txt")
                .find("[resume] 6 steps become 12: the learning rate jumps from 0.0005 at step 6 "
                      "to 0.00275 at step 7; " +
                      keep + " keeps it"),
            std::string::npos)
      << posix_files().read_text(folder / "err.txt");
  ASSERT_EQ(run_in(folder, "train run/config.yaml --quiet --resume --set train.steps=12 " + keep +
                               " --set out=kept"),
            0);
  EXPECT_EQ(posix_files().read_text(folder / "err.txt").find("jumps"), std::string::npos);
  EXPECT_EQ(test::metrics(folder / "kept").back().at("lr"), 0.0005);
}

TEST(GoldenRun, of_version_1_0_is_evaluated) {
  const ScratchFolder folder;
  copy_run(folder, "run-1.0");
  ASSERT_EQ(run_in(folder, "eval --model run --data text.txt --json --quiet"), 0)
      << posix_files().read_text(folder / "err.txt");
  const auto rows = nlohmann::json::parse(posix_files().read_text(folder / "out.txt"));
  EXPECT_NEAR(rows.at(0).at("nll").get<double>(), 5.31151, 1e-3);
}

// It knew no recipe.forward_reads: the forward pass read what was stored.
TEST(GoldenRun, of_version_1_0_goes_on_reading_stored_activations) {
  const ScratchFolder folder;
  copy_run(folder, "run-1.0");
  const auto nll = [&](const std::string& set) {
    const std::string eval = "eval --model run --data text.txt --json --quiet --isa scalar ";
    EXPECT_EQ(run_in(folder, eval + set), 0) << posix_files().read_text(folder / "err.txt");
    return posix_files().read_text(folder / "out.txt");
  };
  const auto expect_stored = [&] {
    EXPECT_EQ(nll(""), nll("--set recipe.forward_reads=stored"));
    EXPECT_NE(nll(""), nll("--set recipe.forward_reads=unquantized"));
  };
  expect_stored();
  const std::string train = "train run/config.yaml --quiet ";
  ASSERT_EQ(run_in(folder, train + "--resume"), 0) << posix_files().read_text(folder / "err.txt");
  EXPECT_NE(posix_files().read_text(folder / "run/config.yaml").find("forward_reads: stored"),
            std::string::npos);
  expect_stored();
}

// The value of a new run is a change, which is named.
TEST(GoldenRun, of_version_1_0_reads_unquantized_activations_where_it_is_told) {
  const ScratchFolder folder;
  copy_run(folder, "run-1.0");
  const std::string resume = "train run/config.yaml --quiet --resume --isa scalar --set ";
  ASSERT_EQ(run_in(folder, resume + "recipe.forward_reads=unquantized"), 0)
      << posix_files().read_text(folder / "err.txt");
  EXPECT_NE(posix_files().read_text(folder / "run/config.yaml").find("forward_reads: unquantized"),
            std::string::npos);
}

// Files as a program that did not know the key writes them: the checkpoint of step 2, and the run.
void forget_key(const ScratchFolder& folder, const std::string& key, const std::string& line) {
  std::filesystem::remove_all(folder / "run/ckpt/step-000004");
  const std::string manifest = folder / "run/ckpt/step-000002/manifest.json";
  auto recorded = nlohmann::json::parse(posix_files().read_text(manifest));
  ASSERT_EQ(recorded["config"].erase(key), 1u);
  recorded["config_hash"] = config_hash(recorded["config"].get<KeyValues>());
  const std::string without = recorded.dump(1);
  folder.put("run/ckpt/step-000002/manifest.json", without);
  const std::string complete = folder / "run/ckpt/step-000002/COMPLETE";
  auto files = nlohmann::json::parse(posix_files().read_text(complete));
  files["files"]["manifest.json"] = {
      {"bytes", without.size()},
      {"xxh64", fmt::format("{:016x}", xxh64(std::as_bytes(std::span(without))))}};
  folder.put("run/ckpt/step-000002/COMPLETE", files.dump(1));
  const std::string config = posix_files().read_text(folder / "run/config.yaml");
  const size_t at = config.find(line);
  ASSERT_NE(at, std::string::npos) << config;
  folder.put("run/config.yaml", std::string(config).erase(at, line.size()));
}

void train_tiny(const ScratchFolder& folder, const std::string& sets) {
  ASSERT_EQ(run_in(folder, "train tiny.yaml --quiet --isa scalar --threads 1 " + sets), 0)
      << posix_files().read_text(folder / "err.txt");
}

// A run that was begun before recipe.block_scale had powers of two, and goes on with them.
TEST(GoldenRun, of_blocks_before_their_scale_was_a_key_goes_on_with_powers_of_two) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  const std::string power = "--set 'recipe={base: fp8_block, block_scale: power}' ";
  train_tiny(folder, power + "--set train.steps=4 --set out=whole");
  train_tiny(folder, power + "--set train.steps=4 --set train.save_every=2");
  const std::string line = "  block_scale: power\n";
  forget_key(folder, "recipe.block_scale", line);
  train_tiny(folder, "--set recipe=fp8_block --set train.steps=4 --resume");
  EXPECT_EQ(test::loss_bits(folder / "run"), test::loss_bits(folder / "whole"));
  EXPECT_NE(posix_files().read_text(folder / "run/config.yaml").find(line), std::string::npos);
}

// Before recipe.accumulation forward GEMMs accumulated fast, and with coat-fast all.
TEST(GoldenRun, before_accumulation_was_a_key_goes_on_with_the_sums_of_its_recipe) {
  for (const auto& [recipe, kept] :
       {std::pair("coat-fast", "fast"), std::pair("coat", "forward")}) {
    const ScratchFolder folder;
    folder.put("tiny.yaml", test::tiny_yaml(folder));
    const std::string sets = fmt::format("--set recipe={} --set train.steps=4 ", recipe);
    train_tiny(folder, sets + "--set train.save_every=2");
    forget_key(folder, "recipe.accumulation", "  accumulation: auto\n");
    train_tiny(folder, sets + "--resume");
    EXPECT_NE(posix_files()
                  .read_text(folder / "run/config.yaml")
                  .find(fmt::format("  accumulation: {}\n", kept)),
              std::string::npos)
        << recipe;
  }
}

}  // namespace
}  // namespace octet::resume_golden_run_test
