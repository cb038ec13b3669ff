// Ranks that mpirun starts: the bits of threads, and what ends them. They skip where there is no
// mpirun, or where the program was built without MPI.
#include <gmock/gmock.h>

#include <filesystem>

#include "cli/launched/launched_run.h"
#include "io/checkpoint.h"

namespace octet::launched_mpi_test {
namespace {

using test::Environment;
using test::Launched;
using testing::HasSubstr;

class MpiRuns : public test::LaunchedRuns {
 protected:
  void SetUp() override {
    if (std::system("mpirun --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no mpirun here";
    const auto module = std::filesystem::path(OCTET_PROGRAM).parent_path() / "liboctet_mpi.so";
    if (!std::filesystem::exists(module)) GTEST_SKIP() << "built without MPI";
  }
  // Each rank writes its process's number into a file pidN of the run's scratch folder.
  std::unique_ptr<Launched> start_mpi(int n, const std::string& out, const std::string& flags,
                                      int silence_seconds = 20) {
    std::vector<std::string> words = {
        "mpirun",
        "--oversubscribe",
        "-n",
        std::to_string(n),
        "sh",
        "-c",
        "echo $$ >" + (folder_ / "pid") + "$OMPI_COMM_WORLD_RANK; exec \"$0\" \"$@\""};
    for (const std::string& word : train_words(out, flags)) words.push_back(word);
    return start({{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                  {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                  {"OCTET_JOIN_SECONDS", "20"},
                  {"OCTET_SILENCE_SECONDS", std::to_string(silence_seconds)}},
                 words);
  }
  void signal(int rank, int number) const {
    ::kill(std::stoi(posix_files().read_text(folder_ / fmt::format("pid{}", rank))), number);
  }
};

TEST_F(MpiRuns, have_the_bits_of_threads) {
  const std::string flags = "--set recipe=coat --set parallel.shard=parameters --threads 1";
  for (const int n : {2, 3}) {
    const std::string threads = fmt::format("threads{}", n), mpi = fmt::format("mpi{}", n);
    train_threads(n, threads, flags);
    const auto run = start_mpi(n, mpi, flags);
    EXPECT_EQ(run->code_within(kSeconds), 0) << run->err();
    expect_same_runs(threads, mpi);
  }
}

TEST_F(MpiRuns, name_a_rank_that_is_killed_or_stopped) {
  for (const int number : {SIGKILL, SIGSTOP}) {
    const std::string out = fmt::format("run{}", number);
    const auto run =
        start_mpi(3, out, "--set train.steps=200000 --set train.save_every=10 --threads 1", 2);
    await_checkpoint(out);
    signal(1, number);
    const int code = run->code_within(30);
    EXPECT_GT(code, 0) << run->err();
    // mpirun, which sees a killed one itself, may end the others before they have said so.
    EXPECT_THAT(run->err(), HasSubstr(number == SIGSTOP ? "octet: [ranks] rank 1 ended: no sign of "
                                                          "life for 2 s"
                                                        : "rank 1 "));
    ASSERT_TRUE(Checkpoints(posix_files(), folder_ / out + "/ckpt").newest());
  }
}

TEST_F(MpiRuns, save_all_when_one_is_asked_to_end) {
  const auto run = start_mpi(3, "run", "--set train.steps=200000 --threads 1");
  await_steps("run");
  signal(2, SIGTERM);
  EXPECT_EQ(run->code_within(30), 143) << run->err();
  const auto checkpoint = Checkpoints(posix_files(), folder_ / "run/ckpt").newest();
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->manifest.step, test::metrics(folder_ / "run").back().at("step"));
}

TEST_F(MpiRuns, say_an_error_of_all_once_each) {
  const auto run = start_mpi(2, "run", "--set train.batch=none");
  EXPECT_EQ(run->code_within(30), 2);
  EXPECT_THAT(run->err(), HasSubstr("--set: train.batch: expected"));
}

using LaunchedWithoutMpi = test::LaunchedRuns;

TEST_F(LaunchedWithoutMpi, are_told_what_is_missing) {
  const std::string copy = folder_ / "octet";
  std::filesystem::copy_file(OCTET_PROGRAM, copy);
  std::vector<std::string> words = train_words("run", "");
  words[0] = copy;
  const auto run = start({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, words);
  EXPECT_EQ(run->code_within(20), 5);
  EXPECT_THAT(run->err(), testing::StartsWith(
                              "octet: [ranks] started as rank 1 of 2 by mpirun: expected MPI, or "
                              "MASTER_ADDR and MASTER_PORT, where ranks meet without it, got " +
                              (folder_ / "liboctet_mpi.so")));
}

}  // namespace
}  // namespace octet::launched_mpi_test
