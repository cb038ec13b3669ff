// Folders that hold something already, and data through pipes: as a user meets them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "cli/train/tiny_run.h"

namespace octet::train_folders_test {
namespace {

using test::ScratchFolder;
using testing::HasSubstr;
using testing::StartsWith;

struct RunOutcome {
  int code = -1;
  std::string out, err;
};

// A shell command in the folder; $O is the program.
RunOutcome run(const ScratchFolder& folder, const std::string& command) {
  folder.put("command.sh", command + "\n");
  const std::string line =
      fmt::format("cd '{}' && O='{}' timeout 60 bash command.sh >out.txt 2>err.txt </dev/null",
                  folder.path(), OCTET_PROGRAM);
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, posix_files().read_text(folder / "out.txt"),
          posix_files().read_text(folder / "err.txt")};
}

// Name and bytes of all files below, links not followed; the lock says nothing.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == ".lock") continue;
    all[entry.path().string()] = posix_files().read_text(entry.path().string());
  }
  return all;
}

class Folders : public testing::Test {
 protected:
  void SetUp() override { folder.put("tiny.yaml", test::tiny_yaml(folder)); }
  // A run in run/ with checkpoints at 2, 4 and 6.
  void train() {
    const RunOutcome outcome = run(folder, "$O train tiny.yaml --quiet --set train.save_every=2");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  ScratchFolder folder;
};

TEST_F(Folders, compare_takes_one_file_and_removes_only_what_it_made) {
  folder.put("big.txt", test::easy_text(400'000));
  folder.put("small.txt", "too little");
  const std::string compare = "$O compare --quiet --recipes bf16 --steps 1 --out runs --data ";
  train();
  std::filesystem::create_directory(folder / "runs");
  std::filesystem::rename(folder / "run", folder / "runs/bf16");
  folder.put("runs/bf16/notes.txt", "mine");
  const auto before = contents(folder / "runs");
  const RunOutcome refused = run(folder, compare + "big.txt");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, StartsWith("octet: out: expected a folder without a run, got "));
  EXPECT_EQ(contents(folder / "runs"), before);

  std::filesystem::rename(folder / "runs", folder / "mine");
  EXPECT_EQ(run(folder, compare + "big.txt").code, 0);
  folder.put("runs/bf16/notes.txt", "mine");
  const auto first = contents(folder / "runs");
  EXPECT_EQ(run(folder, compare + "small.txt").code, 3);
  EXPECT_EQ(run(folder, compare + "none.txt").code, 3);
  EXPECT_EQ(contents(folder / "runs"), first);  // nothing goes before something can come
  EXPECT_EQ(run(folder, compare + "big.txt").code, 0);
  EXPECT_EQ(posix_files().read_text(folder / "runs/bf16/notes.txt"), "mine");

  // Once trained on, it is no longer compare's.
  EXPECT_EQ(run(folder,
                "$O train runs/bf16/config.yaml --quiet --overwrite --set train.steps=1 "
                "--set data.train=[big.txt]")
                .code,
            0);
  EXPECT_EQ(run(folder, compare + "big.txt").code, 2);
  std::filesystem::create_directory(folder / "linked");
  std::filesystem::create_symlink(folder / "mine/bf16", folder / "linked/bf16");
  EXPECT_EQ(run(folder, "$O compare --recipes bf16 --steps 1 --out linked --data big.txt").code, 2);
  EXPECT_EQ(contents(folder / "mine").size(), before.size());
}

TEST_F(Folders, resume_touches_nothing_where_checkpoints_cannot_be_reached) {
  train();
  const std::string resume = "$O train tiny.yaml --quiet --resume --set train.steps=9";
  std::filesystem::rename(folder / "run/ckpt", folder / "away");
  std::filesystem::create_symlink("/mnt/not-mounted", folder / "run/ckpt");
  const auto before = contents(folder / "run");
  const RunOutcome whole = run(folder, resume);
  EXPECT_EQ(whole.code, 3);
  EXPECT_EQ(whole.err, "octet: [files] cannot inspect '" + (folder / "run/ckpt") +
                           "': a link to '/mnt/not-mounted', which is not there\n");
  EXPECT_EQ(contents(folder / "run"), before);

  std::filesystem::remove(folder / "run/ckpt");
  std::filesystem::create_directory(folder / "run/ckpt");
  for (const char* step : {"step-000002", "step-000004", "step-000006"}) {
    std::filesystem::create_symlink("/mnt/not-mounted", folder / (std::string("run/ckpt/") + step));
  }
  EXPECT_EQ(run(folder, resume).code, 3);
  EXPECT_EQ(contents(folder / "run"), before);

  for (const char* step : {"step-000002", "step-000004", "step-000006"}) {
    const std::string link = folder / (std::string("run/ckpt/") + step);
    std::filesystem::remove(link);
    std::filesystem::create_symlink(folder / (std::string("away/") + step), link);
  }
  const RunOutcome followed = run(folder, "$O train tiny.yaml --resume --set train.steps=6");
  EXPECT_EQ(followed.code, 0);
  EXPECT_THAT(followed.err, HasSubstr("at step 6\n"));
}

// Among them what only the end of the work would meet.
// Names, bytes and times of all that is there, the lock and folders too.
std::map<std::string, std::pair<std::string, int64_t>> everything(const std::string& folder) {
  std::map<std::string, std::pair<std::string, int64_t>> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    all[path] = {entry.is_regular_file() ? posix_files().read_text(path) : "",
                 entry.last_write_time().time_since_epoch().count()};
  }
  return all;
}

TEST_F(Folders, resume_of_a_finished_run_says_so_and_writes_nothing) {
  for (const std::string more :
       {"", " --set train.export=bf16", " --ranks 2", " --profile-steps 1:2",
        " --ranks 2 --set recipe=coat --set parallel.shard=parameters"}) {
    std::filesystem::remove_all(folder / "run");
    const std::string command = "$O train tiny.yaml --set train.save_every=2" + more;
    ASSERT_EQ(run(folder, command + " --quiet").code, 0) << more;
    const auto last = test::metrics(folder / "run").back();
    const auto before = everything(folder / "run");
    const RunOutcome told = run(folder, command + " --resume");
    EXPECT_EQ(told.code, 0) << told.err;
    EXPECT_THAT(told.err, HasSubstr(fmt::format("the run is finished: step 6 of 6, loss {:.4f} (a "
                                                "larger train.steps goes on)\n",
                                                last.at("loss").get<double>())));
    EXPECT_THAT(told.out, HasSubstr("finished: step 6 of 6"));
    const RunOutcome json = run(folder, command + " --resume --json --quiet");
    const auto row = nlohmann::json::parse(json.out).at(0);
    EXPECT_EQ(row.at("state"), "finished: step 6 of 6");
    EXPECT_EQ(row.at("steps"), 6);
    double sum = 0;  // of its six steps
    for (const auto& line : test::metrics(folder / "run")) sum += line.at("loss").get<double>();
    EXPECT_NEAR(row.at("train_loss").get<double>(), sum / 6, 5.1e-5);
    EXPECT_NEAR(row.at("val_loss").get<double>(), last.at("val_loss").get<double>(), 5.1e-5);
    EXPECT_EQ(everything(folder / "run"), before) << more;
  }
}

// A folder as a kill in the last save's removal of an older checkpoint leaves it, or in a save.
TEST_F(Folders, resume_of_a_finished_run_removes_what_a_killed_save_left) {
  const std::string command = "$O train tiny.yaml --quiet --set train.save_every=2";
  ASSERT_EQ(run(folder, command).code, 0);
  const auto before = contents(folder / "run");
  folder.put("run/ckpt/step-000001/optim.safetensors", "half removed");
  folder.put("run/ckpt/step-000003.tmp/model.safetensors", "half written");
  ASSERT_NE(contents(folder / "run"), before);
  const RunOutcome told = run(folder, command + " --resume");
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("finished: step 6 of 6"));
  EXPECT_EQ(contents(folder / "run"), before);
}

TEST_F(Folders, resume_of_a_finished_run_writes_what_it_lacks) {
  train();
  const RunOutcome exported =
      run(folder, "$O train tiny.yaml --quiet --resume --set train.export=bf16");
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(posix_files().exists(folder / "run/export/octet_export.json"));
  posix_files().remove(folder / "run/metrics.jsonl");
  const RunOutcome unknown = run(folder, "$O train tiny.yaml --quiet --json --resume");
  EXPECT_EQ(nlohmann::json::parse(unknown.out).at(0).at("train_loss"), nullptr);
}

TEST_F(Folders, resume_touches_nothing_where_a_file_of_the_run_cannot_be_replaced) {
  for (const char* name : {"config.yaml", "config.json", "metrics.jsonl"}) {
    train();
    const std::string path = folder / (std::string("run/") + name);
    for (const bool is_folder : {false, true}) {
      std::filesystem::remove(path);
      const bool is_made =
          is_folder ? std::filesystem::create_directory(path) : ::mkfifo(path.c_str(), 0666) == 0;
      ASSERT_TRUE(is_made);
      const auto before = contents(folder / "run");
      for (const char* flag : {"--resume", "--overwrite"}) {
        const RunOutcome refused =
            run(folder, fmt::format("$O train tiny.yaml --quiet {} --set train.steps=9", flag));
        EXPECT_THAT(refused.err, HasSubstr(folder / "run/")) << flag;
        EXPECT_NE(refused.code, 0) << flag;
        EXPECT_EQ(contents(folder / "run"), before) << flag;
      }
    }
    std::filesystem::remove_all(folder / "run");
  }
}

TEST_F(Folders, resume_says_that_it_begins_anew) {
  const RunOutcome outcome = run(folder, "$O train tiny.yaml --resume");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err,
              HasSubstr("no checkpoint in " + (folder / "run/ckpt") + ": beginning at step 1\n"));
}

TEST_F(Folders, a_run_is_begun_anew_in_its_place_only_when_asked_to) {
  train();
  folder.put("run/notes.txt", "mine");
  for (const char* step : {"2", "4", "6"}) {
    std::filesystem::resize_file(
        folder / (std::string("run/ckpt/step-00000") + step + "/model.safetensors"), 100);
  }
  const auto before = contents(folder / "run");
  const RunOutcome refused = run(folder, "$O train tiny.yaml --quiet");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("(go on with --resume, begin anew with --overwrite, or "));
  EXPECT_EQ(run(folder, "$O train tiny.yaml --quiet --resume").code, 3);
  EXPECT_EQ(run(folder, "$O train tiny.yaml --quiet --resume --overwrite").code, 2);
  EXPECT_EQ(run(folder, "$O train tiny.yaml --quiet --overwrite --set data.train=[none]").code, 3);
  EXPECT_EQ(contents(folder / "run"), before);
  const RunOutcome anew = run(folder, "$O train tiny.yaml --quiet --overwrite --set train.steps=4");
  EXPECT_EQ(anew.code, 0) << anew.err;
  EXPECT_EQ(test::metrics(folder / "run").size(), 4u);
  EXPECT_TRUE(posix_files().exists(folder / "run/ckpt/step-000004/COMPLETE"));
  EXPECT_FALSE(posix_files().exists(folder / "run/ckpt/step-000006"));
  EXPECT_EQ(posix_files().read_text(folder / "run/notes.txt"), "mine");
}

TEST_F(Folders, a_users_own_configuration_is_never_replaced) {
  const std::string text = "# my notes\n" + posix_files().read_text(folder / "tiny.yaml");
  folder.put("mine/config.yaml", text);
  for (const char* flag : {"", "--resume", "--overwrite"}) {
    const RunOutcome outcome =
        run(folder, fmt::format("$O train mine/config.yaml --quiet --set out=mine {}", flag));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("'mine/config.yaml', which this program did not write"));
    EXPECT_EQ(contents(folder / "mine").size(), 1u);
    EXPECT_EQ(posix_files().read_text(folder / "mine/config.yaml"), text);
  }
}

TEST_F(Folders, two_processes_never_train_in_one) {
  const pid_t first = ::fork();
  if (first == 0) {
    const std::string config = folder / "tiny.yaml";
    ::execl(OCTET_PROGRAM, "octet", "train", config.c_str(), "--quiet", "--set",
            "train.steps=1000000", "--set", "train.save_every=3", nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 600 && !posix_files().exists(folder / "run/ckpt/step-000003/COMPLETE"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (const char* flag : {"--resume", "--overwrite"}) {
    const RunOutcome second = run(folder, fmt::format("$O train tiny.yaml --quiet {}", flag));
    EXPECT_EQ(second.code, 3);
    EXPECT_THAT(second.err, HasSubstr(fmt::format("run/.lock': process {} on host ", first)));
  }
  EXPECT_EQ(::waitpid(first, nullptr, WNOHANG), 0);  // nothing happened to the first one
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
  EXPECT_EQ(posix_files().lock(folder / "run/.lock")->problem(), "");  // a dead one holds nothing
}

TEST_F(Folders, a_configuration_may_come_through_a_pipe_but_not_be_empty) {
  const std::string direct = run(folder, "$O plan tiny.yaml --json").out;
  EXPECT_EQ(run(folder, "cat tiny.yaml | $O plan /dev/stdin --json").out, direct);
  EXPECT_EQ(run(folder, "$O plan <(sleep 0.1; cat tiny.yaml) --json").out, direct);
  const RunOutcome empty = run(folder, "true | $O train /dev/stdin --set data.train=[text.txt]");
  EXPECT_EQ(empty.code, 2);
  EXPECT_EQ(empty.err, "octet: /dev/stdin: expected a configuration, got an empty pipe\n");
  EXPECT_EQ(run(folder, "$O plan /dev/null --json").code, 0);
}

TEST_F(Folders, data_and_tensors_may_come_through_pipes) {
  const std::string train = "$O train tiny.yaml --quiet --set train.steps=3 --set ";
  EXPECT_EQ(run(folder, train + "out=a").code, 0);
  EXPECT_EQ(run(folder, "cat text.txt | " + train + "out=b --set data.train=[/dev/stdin]").code, 0);
  EXPECT_EQ(test::metrics(folder / "a").at(0).at("loss_bits"),
            test::metrics(folder / "b").at(0).at("loss_bits"));
  folder.put("x.f32", std::string(512, '\x3f'));
  const std::string step = "$O optim-step --out ";
  EXPECT_EQ(run(folder, step + "a.st --weights x.f32 --grads x.f32").code, 0);
  EXPECT_EQ(run(folder, step + "b.st --weights <(cat x.f32) --grads <(cat x.f32)").code, 0);
  EXPECT_EQ(run(folder, step + "/dev/stdout --weights x.f32 --grads x.f32 | cat > c.st").code, 0);
  const std::string expected = posix_files().read_text(folder / "a.st");
  EXPECT_EQ(posix_files().read_text(folder / "b.st"), expected);
  EXPECT_EQ(posix_files().read_text(folder / "c.st"), expected);
}

}  // namespace
}  // namespace octet::train_folders_test
