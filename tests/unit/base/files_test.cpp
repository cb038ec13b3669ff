#include "base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/if_there.h"
#include "unit/base/faulty_files.h"
#include "unit/base/scratch_folder.h"

namespace octet::base_files_test {
namespace {

using test::Fault;
using test::FaultMode;
using test::FaultyFiles;
using test::ScratchFolder;

std::string error_of(const std::function<void()>& fn, ErrorCode expected = ErrorCode::io) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Files, what_was_written_is_read_back_whole_and_by_offset) {
  const ScratchFolder folder;
  Files& files = posix_files();
  const auto out = files.create(folder / "a");
  out->write(as_bytes("hello "));
  out->write({});
  out->write(as_bytes("world"));
  out->sync();
  out->close();
  EXPECT_EQ(files.read_text(folder / "a"), "hello world");
  EXPECT_EQ(files.read_bytes(folder / "a").size(), 11u);
  const auto in = files.open(folder / "a");
  EXPECT_EQ(in->path(), folder / "a");
  std::array<std::byte, 3> part;
  in->read_at(8, part);
  EXPECT_EQ(static_cast<char>(part[0]), 'r');
  EXPECT_EQ(
      error_of([&] { in->read_at(9, part); }),
      fmt::format("[files] cannot read '{}': expected 3 bytes at offset 9, got 2", folder / "a"));
}

TEST(Files, errors_name_the_operation_the_path_and_the_reason) {
  const ScratchFolder folder;
  Files& files = posix_files();
  const std::string none = folder / "none";
  const std::string inside = folder / "none/x";
  const std::string why = "No such file or directory";
  EXPECT_EQ(error_of([&] { files.open(none); }), "[files] cannot open '" + none + "': " + why);
  EXPECT_EQ(error_of([&] { files.list(none); }), "[files] cannot list '" + none + "': " + why);
  EXPECT_EQ(error_of([&] { files.create(inside); }),
            "[files] cannot create '" + inside + "': " + why);
  EXPECT_EQ(error_of([&] { write_atomically(files, inside, ""); }),
            "[files] cannot create '" + inside + "': " + why);
  EXPECT_EQ(error_of([&] { files.remove(none); }), "[files] cannot remove '" + none + "': " + why);
  EXPECT_EQ(error_of([&] { files.rename(none, inside); }),
            "[files] cannot rename '" + none + "' to '" + inside + "': " + why);
  EXPECT_EQ(error_of([&] { files.sync_directory(none); }),
            "[files] cannot sync '" + none + "': " + why);
  EXPECT_EQ(error_of([&] { files.open(folder.path()); }, ErrorCode::bad_data),
            "[files] cannot read '" + folder.path() + "': Is a directory");
  const std::string file = folder.put("file", "x");
  EXPECT_EQ(error_of([&] { files.create_directories(file + "/sub"); }),
            "[files] cannot create directory '" + file + "/sub': Not a directory");
}

// Somebody else makes each folder just before it would be made here.
class RivalledFiles : public FaultyFiles {
 public:
  using FaultyFiles::FaultyFiles;
  void create_directory(const std::string& path) override {
    posix_files().create_directory(path);
    FaultyFiles::create_directory(path);
  }
};

TEST(Files, folders_that_another_process_makes_at_the_same_time_are_there) {
  const ScratchFolder folder;
  RivalledFiles files(posix_files());
  files.create_directories(folder / "a/b");
  EXPECT_TRUE(files.is_directory(folder / "a/b"));
}

TEST(Files, writing_to_a_full_device_is_an_error) {
  if (!posix_files().exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const auto out = posix_files().open_output_stream("/dev/full");
  ASSERT_TRUE(out);
  EXPECT_EQ(error_of([&] { out->write(as_bytes("x")); }),
            "[files] cannot write to '/dev/full': No space left on device");
}

TEST(Files, listing_is_sorted_and_tells_kinds) {
  const ScratchFolder folder;
  folder.put("b", "1");
  folder.put("a/inner", "1");
  std::filesystem::create_symlink("b", folder / "c");
  const auto entries = posix_files().list(folder.path());
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].kind, EntryKind::directory);
  EXPECT_EQ(entries[1].kind, EntryKind::file);
  EXPECT_EQ(entries[2].kind, EntryKind::link);
  EXPECT_EQ(posix_files().kind(folder / "c"), EntryKind::file);
  EXPECT_EQ(posix_files().entry_kind(folder / "c"), EntryKind::link);
  EXPECT_TRUE(posix_files().is_directory(folder / "a"));
  EXPECT_FALSE(posix_files().is_directory(folder / "b"));
}

TEST(Files, path_helpers) {
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(parent_path("a/b/c"), "a/b");
  EXPECT_EQ(parent_path("c"), ".");
  EXPECT_EQ(file_name("a/b/c.txt"), "c.txt");
}

// A folder made as a run makes that of checkpoints while its other ranks look for it.
TEST(IfThere, what_is_made_between_a_failure_and_the_next_look_is_taken) {
  const ScratchFolder folder;
  const std::string made = folder / "made";
  int n_tries = 0;
  const auto entries = if_there(posix_files(), made, [&] {
    if (++n_tries == 1) {
      const std::string why = error_of([&] { posix_files().list(made); });
      std::filesystem::create_directory(made);
      throw Error(ErrorCode::io, "{}", why);
    }
    return posix_files().list(made);
  });
  EXPECT_TRUE(entries.has_value());
  EXPECT_EQ(n_tries, 2);
  const auto fail = [] { throw Error(ErrorCode::io, "the disk failed"); };
  EXPECT_EQ(error_of([&] { if_there(posix_files(), made, fail); }), "the disk failed");
  EXPECT_FALSE(if_there(posix_files(), folder / "none", fail));
}

TEST(WriteAtomically, replaces_the_file_and_leaves_nothing_beside_it) {
  const ScratchFolder folder;
  write_atomically(posix_files(), folder / "f", "one");
  write_atomically(posix_files(), folder / "f", "two");
  EXPECT_EQ(posix_files().read_text(folder / "f"), "two");
  EXPECT_EQ(posix_files().list(folder.path()).size(), 1u);
}

// Every operation in turn fails: the old file is whole until the rename, the new one after it.
TEST(WriteAtomically, any_failed_operation_leaves_the_old_or_the_new_file_whole) {
  for (const FaultMode mode : {FaultMode::fail_once, FaultMode::fail_from_then}) {
    int64_t n_operations = 0;
    for (int64_t at = 0;; ++at) {
      const ScratchFolder folder;
      FaultyFiles files(posix_files());
      write_atomically(files, folder / "f", "old");
      files.set({.at = at, .mode = mode, .error = EIO});
      const std::string error = error_of([&] { write_atomically(files, folder / "f", "new!"); });
      if (error == "no error") break;
      EXPECT_THAT(error, testing::HasSubstr("Input/output error")) << at;
      const std::string text = posix_files().read_text(folder / "f");
      EXPECT_EQ(text, at < 5 ? "old" : "new!") << "operation " << at << ": " << error;
      if (mode == FaultMode::fail_once) {
        EXPECT_EQ(posix_files().list(folder.path()).size(), 1u) << at;
      }
      n_operations = at + 1;
    }
    EXPECT_EQ(n_operations, 6);  // create, write, sync, close, rename, sync directory
  }
}

// Values of the reference implementation (libxxhash 0.8.1), byte i = 131 i + 7 mod 256.
TEST(Xxh64, meets_the_reference_values_for_any_cutting) {
  const std::pair<size_t, uint64_t> cases[] = {
      {0, 0xef46db3751d8e999ull},   {1, 0xa96c7f0ce858bbb7ull},   {3, 0xbed43740ee6332bbull},
      {4, 0xfa212ae44b3bb23dull},   {7, 0x2744460dd675d2c0ull},   {8, 0x994b676b71ce94ddull},
      {13, 0xdadc8a6255b4829bull},  {31, 0x6711d55e306b5d8full},  {32, 0x07f7b8e3bc5d6e25ull},
      {33, 0x09f85eeb4e1cbe9full},  {63, 0xb7c9968c066cb6a5ull},  {64, 0x50d4159a0411632eull},
      {100, 0x9ddada11d3dc2d8full}, {1000, 0x0bf0bdbcc82eb373ull}};
  for (const auto& [n, expected] : cases) {
    std::vector<std::byte> bytes(n);
    for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 131 + 7);
    EXPECT_EQ(xxh64(bytes), expected) << n;
    for (const size_t cut : {size_t{1}, size_t{5}, size_t{32}, size_t{45}}) {
      Xxh64 hash;
      for (size_t at = 0; at < n; at += cut) {
        hash.update(std::span(bytes).subspan(at, std::min(cut, n - at)));
      }
      EXPECT_EQ(hash.digest(), expected) << n << " by " << cut;
    }
  }
}

// By two writers at once, out of order.
TEST(Files, ranges_of_a_file_are_written_where_they_belong) {
  const ScratchFolder folder;
  const std::string path = folder.put("file", "0123456789");
  const auto first = posix_files().open_ranges(path), second = posix_files().open_ranges(path);
  second->write_at(12, as_bytes("CD"));
  first->write_at(2, as_bytes("ab"));
  second->write_at(0, as_bytes(""));
  for (const auto* writer : {&first, &second}) {
    (*writer)->sync();
    (*writer)->close();
  }
  EXPECT_EQ(posix_files().read_text(path), std::string("01ab456789\0\0CD", 14));
  EXPECT_EQ(error_of([&] { posix_files().open_ranges(folder / "none"); }),
            fmt::format("[files] cannot open '{}': No such file or directory", folder / "none"));
  std::filesystem::create_symlink(path, folder / "link");
  EXPECT_NE(error_of([&] { posix_files().open_ranges(folder / "link"); }), "no error");
}

TEST(Files, room_that_is_left_is_told) {
  const ScratchFolder folder;
  EXPECT_GT(posix_files().free_bytes(folder.path()).value_or(0), 0u);
  EXPECT_FALSE(posix_files().free_bytes(folder / "none").has_value());
}

}  // namespace
}  // namespace octet::base_files_test
