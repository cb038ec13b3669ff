#include "train/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <set>

#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_run_folder_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using testing::HasSubstr;

constexpr StartMode kModes[] = {StartMode::fresh, StartMode::resume, StartMode::overwrite};

// Verdict of each mode, "free" for no error.
std::vector<std::string> verdicts(const ScratchFolder& folder) {
  std::vector<std::string> all;
  for (const StartMode mode : kModes) {
    const std::string error =
        error_of([&] { check_run_folder(posix_files(), folder / "run", mode); }, folder.path());
    const bool is_foreign = error.find("which this program did not write") != error.npos;
    const bool is_run = error.find("expected a folder without a run, got ") != error.npos;
    all.push_back(error == "no error" ? "free" : is_foreign ? "foreign" : is_run ? "run" : error);
  }
  return all;
}

struct Case {
  std::string name;
  std::vector<std::pair<std::string, std::string>> files;
  std::vector<std::string> verdicts;  // fresh, resume, overwrite
};

TEST(RunFolder, is_used_again_only_where_that_is_asked_for_and_it_is_a_runs) {
  const std::string ours = config_header("train") + "model: {}\n";
  const std::string early = "model:\n  path: \"\"\n  kind: llama\nout: x\n";
  const Case cases[] = {
      {"no folder", {}, {"free", "free", "free"}},
      {"notes", {{"notes.txt", "mine"}, {"ckpt/notes", "mine"}}, {"free", "free", "free"}},
      {"lock of an ended run", {{".lock", ""}}, {"free", "free", "free"}},
      {"our config", {{"config.yaml", ours}}, {"run", "free", "free"}},
      {"early config", {{"config.yaml", early}}, {"run", "free", "free"}},
      {"a user's config", {{"config.yaml", "model: {}\n"}}, {"foreign", "foreign", "foreign"}},
      {"early config with a note",
       {{"config.yaml", early + "# mine\n"}},
       {"foreign", "foreign", "foreign"}},
      {"a user's config beside a run",
       {{"config.yaml", "a: 1"}, {"metrics.jsonl", "{}"}},
       {"foreign", "foreign", "foreign"}},
      {"a model folder", {{"config.json", "{}"}}, {"foreign", "foreign", "foreign"}},
      {"metrics alone", {{"metrics.jsonl", "{}"}}, {"run", "free", "foreign"}},
      {"a run", {{"config.yaml", ours}, {"config.json", "{}"}}, {"run", "free", "free"}},
      {"a damaged checkpoint",
       {{"ckpt/step-000004/model.safetensors", "half"}},
       {"run", "free", "foreign"}},
  };
  for (const Case& one : cases) {
    const ScratchFolder folder;
    for (const auto& [name, text] : one.files) folder.put("run/" + name, text);
    EXPECT_EQ(verdicts(folder), one.verdicts) << one.name;
  }
}

TEST(RunFolder, checkpoints_that_cannot_be_reached_are_not_missing) {
  const ScratchFolder folder;
  folder.put("run/config.yaml", config_header("train"));
  std::filesystem::create_symlink("/mnt/not-mounted/ckpt", folder / "run/ckpt");
  for (const StartMode mode : kModes) {
    EXPECT_EQ(
        error_of([&] { check_run_folder(posix_files(), folder / "run", mode); }, folder.path()),
        "[files] cannot inspect 'DIR/run/ckpt': a link to '/mnt/not-mounted/ckpt', which is not "
        "there");
  }
}

TEST(RunFolder, overwriting_removes_nothing_through_links) {
  const ScratchFolder folder;
  folder.put("run/config.yaml", config_header("train"));
  folder.put("big/step-000002/COMPLETE", "x");
  std::filesystem::create_symlink("../big", folder / "run/ckpt");
  const auto overwrite = [&] {
    return error_of(
        [&] { take_run_folder(posix_files(), folder / "run", StartMode::overwrite, {}); },
        folder.path());
  };
  EXPECT_EQ(overwrite(),
            "out: expected checkpoints that --overwrite may remove, got the link "
            "'DIR/run/ckpt'");
  std::filesystem::remove(folder / "run/ckpt");
  std::filesystem::create_directory(folder / "run/ckpt");
  std::filesystem::create_symlink("../../big/step-000002", folder / "run/ckpt/step-000002");
  EXPECT_EQ(overwrite(),
            "out: expected checkpoints that --overwrite may remove, got the link "
            "'DIR/run/ckpt/step-000002'");
  EXPECT_EQ(posix_files().read_text(folder / "big/step-000002/COMPLETE"), "x");
}

TEST(RunFolder, overwriting_leaves_what_is_not_the_runs) {
  const ScratchFolder folder;
  folder.put("run/config.yaml", config_header("compare"));
  for (const char* name : {"ckpt/step-000002/COMPLETE", "ckpt/step-000002/model.safetensors",
                           "ckpt/step-000004.2147483000-0123abcd.tmp/optim.safetensors",
                           "config.yaml.2147483000-0123abcd.tmp", "algorithms.json"}) {
    folder.put(std::string("run/") + name, "the run's");
  }
  const char* mine[] = {"notes.txt", "config.yaml.tmp", "ckpt/backup.tmp/x",
                        "ckpt/step-000002/notes.txt", "events.out.tfevents.1.other.2.3"};
  for (const char* name : mine) folder.put(std::string("run/") + name, "mine");
  EXPECT_EQ(maker_of_run(posix_files(), folder / "run"), "compare");
  take_run_folder(posix_files(), folder / "run", StartMode::overwrite, {});
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "run")) {
    if (entry.is_regular_file()) {
      left.insert(std::filesystem::relative(entry.path(), folder / "run").string());
    }
  }
  std::set<std::string> expected(std::begin(mine), std::end(mine));
  expected.insert({".lock", "config.yaml"});
  EXPECT_EQ(left, expected);
}

// Files of a user who keeps one of the same name there, or linked it to another.
TEST(RunFolder, what_a_run_would_replace_must_be_a_runs) {
  struct Case {
    std::string name, text;
    std::vector<std::string> verdicts;
  };
  const Case cases[] = {
      {"metrics.jsonl", "mine\n", {"run", "foreign", "foreign"}},
      {"metrics.jsonl", "{\"epoch\": 1}\n", {"run", "foreign", "foreign"}},
      {"metrics.jsonl", "{\"step\":1,\"loss\":2}\n", {"run", "free", "free"}},
      {"metrics.jsonl", "{\"step\":1,\"lo", {"run", "free", "free"}},
      {"metrics.jsonl", "", {"run", "free", "free"}},
      {"telemetry.jsonl", "mine\n", {"run", "foreign", "foreign"}},
      {"config.json", "{\"editor\": 1}", {"run", "foreign", "foreign"}},
      {"config.json", "[]", {"run", "foreign", "foreign"}},
      {"config.json", "{\"model_type\": \"llama\"}", {"run", "free", "free"}},
  };
  for (const Case& one : cases) {
    const ScratchFolder folder;
    folder.put("run/config.yaml", config_header("train"));
    folder.put("run/" + one.name, one.text);
    EXPECT_EQ(verdicts(folder), one.verdicts) << one.name << one.text;
  }
  for (const char* name : {"config.json", "metrics.jsonl", "telemetry.jsonl", "samples.jsonl",
                           "algorithms.json", "trace.json"}) {
    const ScratchFolder folder;
    folder.put("run/config.yaml", config_header("train"));
    folder.put("mine", "");
    std::filesystem::create_symlink("../mine", folder / ("run/" + std::string(name)));
    EXPECT_EQ(
        error_of([&] { check_run_folder(posix_files(), folder / "run", StartMode::overwrite); },
                 folder.path()),
        fmt::format("out: expected files of a run that --overwrite may replace, got the link "
                    "'DIR/run/{}'",
                    name));
  }
}

TEST(RunFolder, is_held_until_the_lock_is_given_back) {
  const ScratchFolder folder;
  auto lock = take_run_folder(posix_files(), folder / "run", StartMode::fresh, {});
  const auto again = [&] {
    return error_of([&] { take_run_folder(posix_files(), folder / "run", StartMode::resume, {}); });
  };
  EXPECT_THAT(again(), HasSubstr(fmt::format("run/.lock': process {} on host ", getpid())));
  lock.reset();
  EXPECT_EQ(again(), "no error");
}

}  // namespace
}  // namespace octet::train_run_folder_test
