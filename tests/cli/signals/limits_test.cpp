// Limits of a system, which may withhold room for threads, large files, /proc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>

#include "cli/signals/child.h"
#include "cli/train/tiny_run.h"

namespace octet::signals_limits_test {
namespace {

using test::Child;
using test::ScratchFolder;
using testing::HasSubstr;
using testing::Not;

constexpr int kNoLimit = 99;  // exit code of a child that may not have the limit

// From then on, for this process and what it becomes.
void limit(__rlimit_resource what, rlim_t bytes) {
  const rlimit both{bytes, bytes};
  if (::setrlimit(what, &both) != 0) ::_exit(kNoLimit);
}

TEST(Limits, a_limit_on_the_size_of_files_is_an_error_of_its_file) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  Child child(folder, {"train", "tiny.yaml", "--quiet"}, [] { limit(RLIMIT_FSIZE, 16384); });
  EXPECT_EQ(child.code_within(60), 3);
  EXPECT_THAT(posix_files().read_text(folder / "err.txt"),
              testing::ContainsRegex("octet: .*File too large.*\n$"));
}

// Stacks of 8 MiB would take all of it, and the first thing that the work asks for would fail.
TEST(Limits, threads_leave_memory_for_the_work) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  Child child(folder, {"train", "tiny.yaml", "--threads", "4096"},
              [] { limit(RLIMIT_AS, rlim_t{2} << 30); });
  EXPECT_EQ(child.code_within(60), 0);
  EXPECT_THAT(posix_files().read_text(folder / "err.txt"),
              testing::ContainsRegex("warning: \\[threads\\] expected 4096, the system made "));
}

// Ranks, each a thread with a stack of this size, in 2 GiB of address space: its error.
std::optional<std::string> error_of_ranks(const char* ranks, rlim_t stack_bytes) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  Child child(folder, {"train", "tiny.yaml", "--quiet", "--ranks", ranks}, [stack_bytes] {
    limit(RLIMIT_AS, rlim_t{2} << 30);
    limit(RLIMIT_STACK, stack_bytes);
  });
  const int code = child.code_within(60);
  if (code == kNoLimit) return std::nullopt;
  EXPECT_EQ(code, 5);
  return posix_files().read_text(folder / "err.txt");
}

TEST(Limits, ranks_without_room_for_their_threads_are_a_want_of_the_machine) {
  const auto error = error_of_ranks("2", rlim_t{4} << 30);
  if (!error) GTEST_SKIP() << "the system's own limit of a stack is smaller";
  EXPECT_THAT(*error, HasSubstr("octet: out of threads (ulimit -u, ulimit -v): "));
}

// The first has begun when there is no room for another's stack; there is room for all else, for a
// process dies whose own stack cannot grow.
TEST(Limits, ranks_that_have_begun_end_where_there_is_no_room_for_another) {
  const auto error = error_of_ranks("1000", rlim_t{1} << 30);
  if (!error) GTEST_SKIP() << "the system's own limit of a stack is smaller";
  EXPECT_THAT(*error, HasSubstr("octet: out of "));
}

// A mount namespace of its own in which /proc is not mounted.
bool lose_proc() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::umount2("/proc", MNT_DETACH) == 0;
}

TEST(Limits, without_proc_a_run_is_trained_and_no_code_of_the_current_folder_is_loaded) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  for (const char* name : {"liboctet_cuda.so", "cuda/liboctet_cuda.so"}) folder.put(name, "evil");
  const auto prepare = [] {
    if (!lose_proc()) ::_exit(99);
  };
  Child child(folder, {"train", "tiny.yaml", "--quiet"}, prepare);
  const int code = child.code_within(60);
  if (code == 99) GTEST_SKIP() << "needs the right to unmount /proc";
  EXPECT_EQ(code, 0) << posix_files().read_text(folder / "err.txt");
  Child cuda(folder, {"train", "tiny.yaml", "--quiet", "--overwrite", "--device", "cuda"}, prepare);
  cuda.code_within(60);
  const std::string err = posix_files().read_text(folder / "err.txt");
  EXPECT_THAT(err, Not(HasSubstr("invalid ELF")));  // what loading it would say
  EXPECT_THAT(err, Not(HasSubstr(folder.path())));
}

}  // namespace
}  // namespace octet::signals_limits_test
