// Entries that are no regular files, and those of somebody else: read, written and removed only
// where that is meant.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/temporary_file.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::base_safe_outputs_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using testing::HasSubstr;

std::string fifo(const ScratchFolder& folder, const std::string& name) {
  const std::string path = folder / name;
  EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  return path;
}

// A write_atomically of "new" to DIR/name, and what it says.
std::string replace(const ScratchFolder& folder, const std::string& name) {
  return error_of([&] { write_atomically(posix_files(), folder / name, "new"); }, folder.path());
}

// Nobody writes to the FIFO: a reader that waits for one waits for ever.
TEST(SpecialFiles, a_fifo_in_the_place_of_a_file_is_refused_at_once) {
  const ScratchFolder folder;
  const std::string path = fifo(folder, "p");
  for (const auto& use : {std::function<void()>([&] { posix_files().open(path); }),
                          std::function<void()>([&] { posix_files().read_text(path); })}) {
    EXPECT_EQ(error_of(use, folder.path()),
              "[files] cannot read 'DIR/p': expected a regular file, got a FIFO");
  }
  EXPECT_EQ(replace(folder, "p"),
            "[files] cannot replace 'DIR/p': expected a regular file, got a FIFO");
  EXPECT_THAT(error_of([&] { posix_files().create(path); }), HasSubstr("File exists"));
  EXPECT_EQ(error_of([&] { posix_files().lock(path); }, folder.path()),
            "[files] cannot lock 'DIR/p': expected a regular file, got a FIFO");
  EXPECT_EQ(error_of([&] { posix_files().open_output_stream(path); }, folder.path()),
            "[files] cannot write to 'DIR/p': nobody reads from this FIFO");
  EXPECT_EQ(posix_files().kind(path), EntryKind::other);
}

TEST(SpecialFiles, devices_without_an_end_are_refused) {
  EXPECT_EQ(error_of([] { posix_files().open_stream("/dev/zero", 10); }),
            "[files] cannot read '/dev/zero': expected a regular file or a pipe, got a device");
  EXPECT_EQ(error_of([] { posix_files().open("/dev/null"); }),
            "[files] cannot read '/dev/null': expected a regular file, got a device");
  EXPECT_EQ(posix_files().read_stream("/dev/null"), "");
}

TEST(SpecialFiles, a_pipe_is_read_to_its_end_however_late_its_writer_comes) {
  const ScratchFolder folder;
  const std::string path = fifo(folder, "p");
  const std::string text(300'000, 'x');
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::ofstream out(path);
    out << text.substr(0, 7) << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    out << text.substr(7);
  });
  EXPECT_EQ(posix_files().read_stream(path), text);
  writer.join();
}

TEST(SpecialFiles, an_empty_pipe_ends_and_a_long_one_is_refused) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string path = fmt::format("/dev/fd/{}", ends[0]);
  EXPECT_EQ(::write(ends[1], "abcdef", 6), 6);
  ::close(ends[1]);
  EXPECT_EQ(error_of([&] { posix_files().open_stream(path, 5); }),
            "[files] cannot read '" + path + "': expected at most 5 bytes, got more");
  EXPECT_EQ(posix_files().read_stream(path), "");
  ::close(ends[0]);
}

TEST(SpecialFiles, files_of_proc_are_read_to_their_end_or_refused) {
  if (!posix_files().exists("/proc/self/status")) GTEST_SKIP() << "no /proc here";
  EXPECT_THAT(posix_files().read_stream("/proc/self/status"), HasSubstr("Pid:"));
  EXPECT_THAT(error_of([] { posix_files().read_text("/proc/self/status"); }),
              HasSubstr("expected a regular file, got one that does not tell its size"));
}

// metrics.jsonl of a run, read at any moment: empty, or with its first line.
TEST(SpecialFiles, a_file_that_is_just_being_written_is_a_regular_one) {
  const ScratchFolder folder;
  const std::string path = folder.put("a.txt", ""), next = folder / "next.txt";
  std::atomic<bool> is_done = false;
  std::thread writer([&] {
    while (!is_done) {
      std::ofstream file(next);
      std::filesystem::rename(next, path);
      file << 'x' << std::flush;
    }
  });
  std::string error = "no error";
  for (int i = 0; i < 5000 && error == "no error"; ++i) {
    error = error_of([&] { posix_files().open(path); });
  }
  is_done = true;
  writer.join();
  EXPECT_EQ(error, "no error");
}

// It waits for the kernel's next message.
TEST(SpecialFiles, a_file_that_never_ends_is_refused) {
  const char* path = "/proc/kmsg";
  if (::access(path, R_OK) != 0) GTEST_SKIP() << "needs the right to read the kernel's messages";
  EXPECT_THAT(error_of([&] { posix_files().read_stream(path); }),
              HasSubstr("cannot read '/proc/kmsg': expected "));
}

TEST(Files, what_cannot_be_told_is_not_taken_for_missing) {
  const ScratchFolder folder;
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_EQ(error_of([&] { posix_files().exists(folder / "dangling"); }, folder.path()),
            "[files] cannot inspect 'DIR/dangling': a link to 'nowhere', which is not there");
  EXPECT_THAT(error_of([&] { posix_files().exists(folder / "loop"); }), HasSubstr("symbolic link"));
  EXPECT_FALSE(posix_files().exists(folder / "none"));
  EXPECT_FALSE(posix_files().exists(folder / "none/below"));
}

TEST(Files, a_text_larger_than_any_is_refused_by_name) {
  const ScratchFolder folder;
  const std::string path = folder.put("tokenizer.bin", "x");
  std::filesystem::resize_file(path, uintmax_t{1} << 40);
  EXPECT_EQ(error_of([&] { posix_files().read_text(path); }, folder.path()),
            "[files] cannot read 'DIR/tokenizer.bin': expected at most 268435456 bytes, got "
            "1099511627776");
}

TEST(Files, missing_folders_are_made_and_their_parents_synced) {
  const ScratchFolder folder;
  for (const char* name : {"a/b/c", "d/", "e/./f", "a/b"}) {
    posix_files().create_directories(folder / name);
    EXPECT_TRUE(posix_files().is_directory(folder / name)) << name;
  }
}

TEST(WriteAtomically, leaves_what_others_named_tmp_alone) {
  const ScratchFolder folder;
  folder.put("f", "old");
  folder.put("f.tmp", "precious");
  EXPECT_EQ(replace(folder, "f"), "no error");
  EXPECT_EQ(posix_files().read_text(folder / "f"), "new");
  EXPECT_EQ(posix_files().read_text(folder / "f.tmp"), "precious");
}

TEST(WriteAtomically, keeps_folders_and_links) {
  const ScratchFolder folder;
  folder.put("victim", "old");
  std::filesystem::create_symlink("victim", folder / "link");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_directory(folder / "empty");
  EXPECT_EQ(replace(folder, "empty"),
            "[files] cannot replace 'DIR/empty': expected a regular file, got a directory");
  EXPECT_EQ(replace(folder, "dangling"),
            "[files] cannot inspect 'DIR/dangling': a link to 'nowhere', which is not there");
  EXPECT_EQ(replace(folder, "link"), "no error");  // by intention: what it leads to
  EXPECT_EQ(posix_files().read_text(folder / "victim"), "new");
  EXPECT_EQ(posix_files().entry_kind(folder / "link"), EntryKind::link);
  EXPECT_EQ(posix_files().list(folder.path()).size(), 4u);
}

TEST(WriteAtomically, never_writes_through_a_name_that_is_taken) {
  const ScratchFolder folder;
  folder.put("victim", "old");
  std::filesystem::create_symlink("victim", folder / "link");
  EXPECT_THAT(error_of([&] { posix_files().create(folder / "link"); }), HasSubstr("File exists"));
  EXPECT_EQ(posix_files().read_text(folder / "victim"), "old");
}

TEST(WriteOutput, goes_straight_into_pipes_and_own_descriptors) {
  const ScratchFolder folder;
  const auto written_to = [&](const std::string& path) {
    return error_of([&] {
      write_output(posix_files(), path, [](FileWriter& out) { out.write(as_bytes("page")); });
    });
  };
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(written_to(fmt::format("/dev/fd/{}", ends[1])), "no error");
  char text[9] = {};
  EXPECT_EQ(::read(ends[0], text, sizeof(text)), 4);
  EXPECT_STREQ(text, "page");
  // A file that a descriptor of ours has open is not replaced under it.
  const int file = ::open((folder / "f").c_str(), O_RDWR | O_CREAT, 0600);
  EXPECT_EQ(::write(file, "before ", 7), 7);
  EXPECT_EQ(written_to(fmt::format("/dev/fd/{}", file)), "no error");
  EXPECT_EQ(posix_files().read_text(folder / "f"), "before page");
  EXPECT_EQ(written_to("/dev/null"), "no error");
  EXPECT_EQ(written_to(folder / "g"), "no error");
  EXPECT_EQ(posix_files().read_text(folder / "g"), "page");
  for (const int fd : {ends[0], ends[1], file}) ::close(fd);
}

TEST(TemporaryNames, are_left_overs_once_their_process_has_ended) {
  EXPECT_TRUE(is_left_over(file_name(temporary_name("a/f")), "f"));  // of this process
  EXPECT_NE(temporary_name("f"), temporary_name("f"));
  const std::string of_init = "f.1-0123abcd.tmp";
  EXPECT_EQ(is_left_over(of_init, "f"), ::getpid() == 1);
  for (const char* name : {"f.tmp", "f.2147483000.tmp", "f.2147483000-0123abcg.tmp", "f.-1.tmp",
                           "g.2147483000-0123abcd.tmp", "f.2147483000-0123abcd", "backup.tmp"}) {
    EXPECT_FALSE(is_left_over(name, "f")) << name;
  }
  EXPECT_TRUE(is_left_over("f.2147483000-0123abcd.tmp", "f"));
}

TEST(FileLock, the_second_process_is_told_who_holds_it_and_a_dead_one_holds_nothing) {
  const ScratchFolder folder;
  const std::string path = folder.put(".lock", "process 99 on host elsewhere, long gone\n");
  int ready[2], done[2];
  ASSERT_TRUE(::pipe(ready) == 0 && ::pipe(done) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = posix_files().lock(path);
    char byte = 'x';
    if (::write(ready[1], &byte, 1) == 1) ::close(done[1]), ::read(done[0], &byte, 1);
    ::_exit(0);  // without letting go
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(error_of([&] { posix_files().lock(path); }, folder.path()),
              testing::MatchesRegex(fmt::format(
                  "\\[files\\] cannot lock 'DIR/.lock': process {} on host .+ holds it", child)));
  ::close(done[1]);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(posix_files().lock(path)->problem(), "");
  for (const int fd : {ready[0], ready[1], done[0]}) ::close(fd);
}

}  // namespace
}  // namespace octet::base_safe_outputs_test
