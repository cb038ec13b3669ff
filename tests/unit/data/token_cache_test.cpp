#include "data/token_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <span>

#include "base/hash.h"
#include "data/dataset.h"
#include "unit/base/error_of.h"
#include "unit/base/faulty_files.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_token_cache_test {
namespace {

using test::error_of;
using test::FaultyFiles;
using test::ScratchFolder;

// Letters in pairs, with an end of text.
constexpr const char* kTokenizer =
    R"({"model": {"type": "BPE", "vocab": {)"
    R"("a": 0, "b": 1, "c": 2, "ab": 3, "<|endoftext|>": 4, "Ġ": 5, "Ċ": 6},)"
    R"("merges": ["a b"]},)"
    R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,)"
    R"("use_regex": true}, "decoder": {"type": "ByteLevel"},)"
    R"("added_tokens": [{"id": 4, "content": "<|endoftext|>", )"
    R"("special": true, "single_word": false, "lstrip": false,)"
    R"( "rstrip": false, "normalized": false}]})";

struct Read {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> starts;
  bool operator==(const Read&) const = default;
};

Read read_all(const TokenStream& stream) {
  const auto n = static_cast<size_t>(stream.n_tokens());
  Read read{std::vector<int32_t>(n, -7), std::vector<uint8_t>(n, 9)};
  stream.read(0, read.tokens, read.starts);
  return read;
}

class TokenCacheTest : public ::testing::Test {
 protected:
  TokenCacheTest() {
    write("tokenizer.json", kTokenizer);
    write("one.txt", "ab c|| a b c ||\n\n||bab\n");
    write("texts/x.txt", "abc");
    write("texts/y/z.txt", "c a||b");
    write("texts/none.dat", std::string("a\0b", 3));
    reload();
  }

  void write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(parent_path(path));
    write_atomically(posix_files(), path, text);
  }
  void reload() { tokenizer_ = make_tokenizer(posix_files(), folder_ / "tokenizer.json"); }

  Dataset open(const std::string& name, Files& files, bool with_cache = true, int threads = 2) {
    TokenCache cache(files, *tokenizer_,
                     {.folder = folder_ / "cache",
                      .tokenizer_path = folder_ / "tokenizer.json",
                      .separator = "||",
                      .threads = threads,
                      .log = log()});
    DatasetOptions options{.train = {folder_ / name}, .val_fraction = 0};
    options.document_separator = "||";
    options.log = log();
    if (with_cache) options.cache = &cache;
    return open_dataset(files, options, *tokenizer_);
  }
  Dataset open(const std::string& name) { return open(name, posix_files()); }
  Log log() {
    return Log([this](LogLevel level, const std::string& text) {
      if (level != LogLevel::warning) return;
      text.find("are not read") == text.npos ? warnings_.push_back(text) : unread_.push_back(text);
    });
  }

  std::vector<std::string> cached() const {
    std::vector<std::string> names;
    if (!posix_files().exists(folder_ / "cache")) return names;
    for (const auto& entry : posix_files().list(folder_ / "cache")) names.push_back(entry.name);
    return names;
  }
  std::string only_file() const {
    EXPECT_EQ(cached().size(), 1u);
    return join_path(folder_ / "cache", cached().at(0));
  }

  ScratchFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::string> warnings_, unread_;  // unread: of files of a folder
};

TEST_F(TokenCacheTest, gives_what_memory_gives) {
  for (const char* name : {"one.txt", "texts"}) {
    const Dataset memory = open(name, posix_files(), /*with_cache=*/false);
    for (const int threads : {1, 3}) {
      std::filesystem::remove_all(folder_ / "cache");
      for (int time = 0; time < 2; ++time) {  // made, then found
        const Dataset made = open(name, posix_files(), true, threads);
        EXPECT_EQ(read_all(made.train), read_all(memory.train)) << name;
        EXPECT_EQ(made.train.identity(), memory.train.identity()) << name;
        EXPECT_EQ(made.n_skipped, memory.n_skipped) << name;
        EXPECT_EQ(cached().size(), 1u);
      }
    }
  }
  EXPECT_TRUE(warnings_.empty());
  const std::string unread = "[data] '" + (folder_ / "texts") +
                             "': 1 of 3 files are not read, as they are damaged or no UTF-8 text";
  EXPECT_EQ(unread_, std::vector<std::string>(5, unread));
}

// A file that begins with a mark of the byte order is the same text.
TEST_F(TokenCacheTest, takes_no_byte_order_mark_for_text) {
  const Read plain = read_all(open("one.txt").train);
  const std::string marked = "\xEF\xBB\xBF" + posix_files().read_text(folder_ / "one.txt");
  write("one.txt", marked);
  for (const bool with_cache : {true, false}) {
    EXPECT_EQ(read_all(open("one.txt", posix_files(), with_cache).train), plain);
  }
}

TEST_F(TokenCacheTest, is_read_in_any_part) {
  const Read all = read_all(open("one.txt").train);
  const TokenStream stream = open("one.txt").train;
  for (int64_t first = 0; first < stream.n_tokens(); ++first) {
    const auto n = static_cast<size_t>(std::min<int64_t>(3, stream.n_tokens() - first));
    Read part{std::vector<int32_t>(n), std::vector<uint8_t>(n)};
    stream.read(first, part.tokens, part.starts);
    EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), all.tokens.begin() + first));
    EXPECT_TRUE(std::equal(part.starts.begin(), part.starts.end(), all.starts.begin() + first));
  }
}

TEST_F(TokenCacheTest, is_used_again_and_made_once) {
  open("one.txt");
  const auto time = std::filesystem::last_write_time(only_file());
  FaultyFiles files(posix_files());
  files.set({.at = 0, .mode = test::FaultMode::fail_from_then});  // nothing can be written
  open("one.txt", files);
  EXPECT_EQ(files.count(), 0);
  EXPECT_EQ(std::filesystem::last_write_time(only_file()), time);
}

TEST_F(TokenCacheTest, is_made_again_where_the_text_changes) {
  open("one.txt");
  write("one.txt", "ab c|| a b c ||\n\n||baa\n");  // of the same length
  EXPECT_EQ(read_all(open("one.txt").train), read_all(open("one.txt", posix_files(), false).train));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0], "[data] " + only_file() + " is made again: the text has changed since");
}

TEST_F(TokenCacheTest, is_another_for_another_tokenizer_of_the_same_words) {
  open("one.txt");
  std::string other = kTokenizer;
  other.replace(other.find("[\"a b\"]"), 7, "[]");
  write("tokenizer.json", other);
  reload();
  EXPECT_EQ(read_all(open("one.txt").train), read_all(open("one.txt", posix_files(), false).train));
  EXPECT_EQ(cached().size(), 2u);
}

TEST_F(TokenCacheTest, is_made_again_where_any_byte_is_damaged) {
  const Read expected = read_all(open("one.txt").train);
  const std::string path = only_file();
  const std::string bytes = posix_files().read_text(path);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x11);
    write_atomically(posix_files(), path, damaged);
    warnings_.clear();
    EXPECT_EQ(read_all(open("one.txt").train), expected) << i;
    EXPECT_EQ(warnings_.size(), 1u) << i;
  }
  for (const size_t n : {size_t{0}, size_t{5}, size_t{63}, size_t{64}, bytes.size() - 1}) {
    write_atomically(posix_files(), path, bytes.substr(0, n));
    EXPECT_EQ(read_all(open("one.txt").train), expected) << n;
  }
  EXPECT_EQ(posix_files().read_text(path), bytes);
}

TEST_F(TokenCacheTest, the_same_text_under_another_name_has_the_same_identity) {
  folder_.put("again.txt", posix_files().read_text(folder_ / "one.txt"));
  EXPECT_EQ(open("again.txt").train.identity(), open("one.txt").train.identity());
}

// A file whose hashes are right, as anyone can compute them, and whose documents start anywhere.
std::string forged(const std::string& bytes, const std::vector<int64_t>& starts) {
  uint64_t trailer[8];
  std::memcpy(trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  std::string data = bytes.substr(0, trailer[2] * trailer[3]);
  data.append(reinterpret_cast<const char*>(starts.data()), starts.size() * sizeof(int64_t));
  trailer[4] = starts.size();
  Xxh64 identity;
  identity.update(data);
  trailer[6] = identity.digest();
  trailer[7] = xxh64(std::as_bytes(std::span(trailer)).first(56));
  return data + std::string(reinterpret_cast<const char*>(trailer), sizeof trailer);
}

TEST_F(TokenCacheTest, is_made_again_where_documents_start_outside_or_in_disorder) {
  const Read expected = read_all(open("one.txt").train);
  const std::string path = only_file();
  const std::string bytes = posix_files().read_text(path);
  write_atomically(posix_files(), path, forged(bytes, {0, 2}));
  EXPECT_NE(read_all(open("one.txt").train), expected);  // the hashes are right
  EXPECT_TRUE(warnings_.empty());
  const auto n = static_cast<int64_t>(expected.tokens.size());
  for (const std::vector<int64_t>& starts : std::vector<std::vector<int64_t>>{
           {1, 2, -1'000'000'000}, {0, 2, 1}, {-5, 1}, {0, n + 1}, {0, INT64_MAX}}) {
    write_atomically(posix_files(), path, forged(bytes, starts));
    warnings_.clear();
    EXPECT_EQ(read_all(open("one.txt").train), expected);
    EXPECT_EQ(warnings_, std::vector{"[data] " + path + " is made again: it is damaged"});
  }
}

TEST_F(TokenCacheTest, does_without_where_it_cannot_be_written) {
  FaultyFiles files(posix_files());
  const Dataset memory = open("one.txt", posix_files(), false);
  for (int64_t at = 0; at < 5; ++at) {
    std::filesystem::remove_all(folder_ / "cache");
    warnings_.clear();
    files.set({.at = at, .mode = test::FaultMode::fail_from_then});
    EXPECT_EQ(read_all(open("one.txt", files).train), read_all(memory.train)) << at;
    EXPECT_EQ(warnings_.size(), 1u) << at;
  }
}

TEST_F(TokenCacheTest, replaces_no_file_that_a_link_leads_to) {
  const Read expected = read_all(open("one.txt", posix_files(), false).train);
  open("one.txt", posix_files());
  const auto entry = *std::filesystem::directory_iterator(folder_ / "cache");
  std::filesystem::remove(entry.path());
  write("mine.txt", "mine");
  std::filesystem::create_symlink("../mine.txt", entry.path());
  EXPECT_EQ(read_all(open("one.txt", posix_files()).train), expected);
  EXPECT_EQ(posix_files().read_text(folder_ / "mine.txt"), "mine");
}

TEST_F(TokenCacheTest, lets_processes_make_it_together) {
  const Read expected = read_all(open("one.txt", posix_files(), false).train);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool is_right = read_all(open("one.txt", posix_files(), true, 1).train) == expected;
      ::_exit(is_right && warnings_.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(cached().size(), 1u);
}

TEST_F(TokenCacheTest, refuses_a_named_file_that_is_no_text) {
  write("bad.txt", "a\xff");
  EXPECT_EQ(error_of([&] { open("bad.txt"); }),
            "[data] '" + (folder_ / "bad.txt") +
                "': expected UTF-8 text, .gz, .xz, .zst, .npy or .bin, got other data");
  EXPECT_TRUE(cached().empty());
}

TEST_F(TokenCacheTest, reads_long_texts_whose_characters_pieces_cut) {
  std::string text;
  while (text.size() < (3 << 20)) text += "ab c";
  write("texts/long.txt", text);
  const Dataset memory = open("texts", posix_files(), false);
  EXPECT_EQ(open("texts").train.identity(), memory.train.identity());
  std::string packed_name = folder_ / "long.gz";
  gzFile file = gzopen(packed_name.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  const Dataset plain = open("texts/long.txt", posix_files(), false);
  EXPECT_EQ(read_all(open("long.gz").train), read_all(plain.train));
}

// A download that ended in a page of text, say: no way of reading it takes it for training text.
TEST_F(TokenCacheTest, refuses_what_its_name_alone_calls_packed) {
  write("a.txt.xz", "text that nobody has packed");
  const std::string refused =
      "[data] " + (folder_ / "a.txt.xz") + ": expected packed data, as its name says, got other";
  EXPECT_EQ(error_of([&] { open("a.txt.xz"); }), refused);
  EXPECT_EQ(error_of([&] { open("a.txt.xz", posix_files(), false); }), refused);
  EXPECT_TRUE(cached().empty());
}

}  // namespace
}  // namespace octet::data_token_cache_test
