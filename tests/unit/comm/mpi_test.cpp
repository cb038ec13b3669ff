// Ranks that mpirun starts: each test calls mpirun, which starts this program again for the same
// test, as a rank. They skip where there is no mpirun or no module.
#include "comm/mpi/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "unit/base/scratch_folder.h"

namespace octet::mpi {
namespace {

using testing::HasSubstr;

std::string module_path() {
  return std::filesystem::path(OCTET_PROGRAM).parent_path() / "liboctet_mpi.so";
}

template <typename T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// Longer than a piece of what is moved at once.
constexpr size_t kLong = (size_t{64} << 20) + 12'345;

bool is_rank() {
  return ::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
}

class MpiRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (is_rank()) return;
    if (std::system("mpirun --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no mpirun here";
    const Library library = find_library(module_path());
    if (!library.problem.empty()) GTEST_SKIP() << library.problem;
  }
  // Acts as a rank: calls body, writes "rank N: " and its last words, and ends.
  void be_rank(const std::function<void(Group&)>& body, int silence_seconds = 20) {
    auto group = join_ranks(module_path(), std::chrono::seconds(20),
                            {.silence = std::chrono::seconds(silence_seconds)});
    std::string words = "moved";
    try {
      body(*group);
    } catch (const Error& error) {
      group->fail(error.what());
      words = error.what();
    }
    const std::string line = fmt::format("rank {}: {}\n", group->rank(), words);
    EXPECT_EQ(::write(STDERR_FILENO, line.data(), line.size()), std::ssize(line));
    std::signal(SIGTERM, SIG_IGN);
    group.reset();
    ::_exit(words == "moved" ? 0 : 1);
  }
  // Output of two ranks.
  std::string run() {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    const std::string out = folder_ / "out.txt";
    const std::string command =
        "timeout 60 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
        "--oversubscribe -n 2 " +
        program + " --gtest_filter=MpiRanks." +
        testing::UnitTest::GetInstance()->current_test_info()->name() + " >" + out +
        " 2>&1 </dev/null";
    const int code = std::system(command.c_str());
    status_ = WIFEXITED(code) ? WEXITSTATUS(code) : -1;
    return posix_files().read_text(out);
  }
  const test::ScratchFolder folder_;
  int status_ = -1;
};

void move_all(Group& group) {
  const auto n = static_cast<size_t>(group.size());
  const auto me = static_cast<size_t>(group.rank());
  const auto expect = [](bool is_well) {
    if (!is_well) throw Error(ErrorCode::internal, "moved badly");
  };
  for (const size_t n_each : {size_t{1}, size_t{700'001}, kLong}) {
    const auto n_bytes = static_cast<int64_t>(n_each);
    std::vector<char> own(n_each, static_cast<char>(me + 1)), all(n * n_each), got(n * n_each);
    group.all_gather(bytes(own), bytes(all), n_bytes);
    for (size_t i = 0; i < all.size(); ++i) expect(all[i] == static_cast<char>(i / n_each + 1));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(me * 10 + i / n_each);
    group.all_to_all(bytes(all), bytes(got), n_bytes);
    for (size_t i = 0; i < got.size(); ++i)
      expect(got[i] == static_cast<char>(i / n_each * 10 + me));
    own.assign(n_each, me == 1 ? 'x' : '?');
    group.broadcast(bytes(own), n_bytes, 1);
    expect(own == std::vector<char>(n_each, 'x'));
    group.all_gather(nullptr, nullptr, 0);
  }
}

TEST_F(MpiRanks, collectives_move_what_they_say) {
  if (is_rank()) return be_rank(move_all);
  const std::string text = run();
  EXPECT_EQ(status_, 0) << text;
  EXPECT_THAT(text, HasSubstr("rank 0: moved\n"));
  EXPECT_THAT(text, HasSubstr("rank 1: moved\n"));
}

TEST_F(MpiRanks, in_different_collectives_are_told) {
  if (is_rank()) {
    return be_rank([](Group& group) {
      std::vector<int> own(4), all(8);
      group.all_gather(bytes(own), bytes(all), group.rank() == 0 ? 8 : 4);
    });
  }
  const std::string text = run();
  EXPECT_EQ(status_, 1);
  EXPECT_THAT(text, HasSubstr("all_gather of 8 bytes"));
  EXPECT_THAT(text, HasSubstr("rank 1: [ranks] rank "));
}

TEST_F(MpiRanks, an_error_of_one_ends_all_with_its_words) {
  if (is_rank()) {
    return be_rank([](Group& group) {
      gather_value(&group, 1);
      if (group.rank() == 1) throw Error(ErrorCode::io, "[disk] full");
      while (true) gather_value(&group, 1);
    });
  }
  const std::string text = run();
  EXPECT_EQ(status_, 1);
  EXPECT_THAT(text, HasSubstr("rank 0: [ranks] rank 1 ended: [disk] full\n"));
  EXPECT_THAT(text, HasSubstr("rank 1: [disk] full\n"));
}

TEST_F(MpiRanks, a_stopped_one_is_named_and_ended) {
  if (is_rank()) {
    const auto stop = [](Group& group) {
      gather_value(&group, 1);
      if (group.rank() == 0) ::kill(::getpid(), SIGSTOP);
      while (true) gather_value(&group, 1);
    };
    return be_rank(stop, 1);
  }
  const std::string text = run();
  EXPECT_EQ(status_, 1);
  EXPECT_THAT(text, HasSubstr("rank 1: [ranks] rank 0 ended: no sign of life for 1 s"));
}

TEST(MpiModule, that_is_not_there_is_said) {
  EXPECT_THAT(find_library("/nowhere/liboctet_mpi.so").problem, HasSubstr("/nowhere/"));
}

}  // namespace
}  // namespace octet::mpi
