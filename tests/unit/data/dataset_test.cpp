#include "data/dataset.h"

#include <gtest/gtest.h>
#include <lzma.h>

#include <filesystem>

#include "data/text_files.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::dataset_test {
namespace {

using test::error_of;
using test::ScratchFolder;

std::string pack_xz(const std::string& text) {
  std::string packed(lzma_stream_buffer_bound(text.size()), '\0');
  size_t n = 0;
  const auto status = lzma_easy_buffer_encode(
      6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(text.data()), text.size(),
      reinterpret_cast<uint8_t*>(packed.data()), &n, packed.size());
  EXPECT_EQ(status, LZMA_OK);
  packed.resize(n);
  return packed;
}

std::string text_of(const TokenStream& stream) {
  std::vector<int32_t> tokens(static_cast<size_t>(stream.n_tokens()));
  std::vector<uint8_t> starts(tokens.size());
  stream.read(0, tokens, starts);
  return byte_tokenizer()->decode(tokens);
}

// Starts of documents, as a string of '^' and '.'.
std::string starts_of(const TokenStream& stream) {
  std::vector<int32_t> tokens(static_cast<size_t>(stream.n_tokens()));
  std::vector<uint8_t> starts(tokens.size());
  stream.read(0, tokens, starts);
  std::string text;
  for (const uint8_t start : starts) text += start ? '^' : '.';
  return text;
}

Dataset open(const DatasetOptions& options) {
  return open_dataset(posix_files(), options, *byte_tokenizer());
}

TEST(ReadableText, is_utf8_without_nul) {
  const std::pair<std::string, bool> cases[] = {
      {"", true},
      {"plain\n\t", true},
      {"é€😀", true},
      {std::string("a\0b", 3), false},
      {"\xff", false},
      {"\x80", false},
      {"\xc3", false},
      {"\xc0\xaf", false},          // overlong
      {"\xe0\x80\xaf", false},      // overlong
      {"\xed\xa0\x80", false},      // surrogate
      {"\xf4\x90\x80\x80", false},  // above U+10FFFF
      {"\xf4\x8f\xbf\xbf", true},
      {"caf\xe9 ", false},  // Latin-1
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(is_readable_text(text), expected) << text;
}

TEST(Xz, unpacks_one_or_more_streams_and_refuses_damage) {
  const std::string text(100'000, 'x');
  const std::string packed = pack_xz(text);
  const ScratchFolder folder;
  const std::string path = folder / "f.txt";
  const auto read = [&](const std::string& bytes, uint64_t limit = 1 << 20) {
    folder.put("f.txt", bytes);
    return read_text_file(posix_files(), path, limit);
  };
  EXPECT_EQ(read(packed), text);
  EXPECT_EQ(read(packed + pack_xz("tail")), text + "tail");
  EXPECT_EQ(read("not packed"), "not packed");
  for (const std::string name : {"f.xz", "f.txt.gz", "f.zst"}) {
    folder.put(name, "text that nobody has packed");
    EXPECT_EQ(error_of([&] { read_text_file(posix_files(), folder / name, 1 << 20); }),
              "[data] " + folder / name + ": expected packed data, as its name says, got other");
  }
  const auto refused = [&](const std::string& bytes, uint64_t limit) {
    return error_of([&] { read(bytes, limit); });
  };
  EXPECT_EQ(refused(packed, 99'999),
            "[data] " + path + ": expected at most 99999 bytes of text, got more");
  const std::string damaged =
      "[data] " + path + ": expected whole xz data, got damaged data or its start";
  EXPECT_EQ(refused(packed.substr(0, packed.size() - 4), 1 << 20), damaged);
  std::string flipped = packed;
  flipped[packed.size() / 2] ^= 1;
  EXPECT_EQ(refused(flipped, 1 << 20), damaged);
}

// Told by their content, as everywhere else.
TEST(Dataset, packed_text_is_unpacked_whatever_its_name) {
  const auto packed_by = [](const char* hex) {
    std::string bytes;
    for (const char* at = hex; *at != '\0'; at += 2) {
      bytes += static_cast<char>(std::stoi(std::string(at, 2), nullptr, 16));
    }
    return bytes;
  };
  const std::string gzip =
                        packed_by("1f8b08000000000002032b484cce4e4d512849ad2801000cf40ad20b000000"),
                    zstd = packed_by("28b52ffd04585900007061636b65642074657874c1684e51");
  const ScratchFolder folder;
  for (const char* name : {"t.txt.gz", "t.txt"}) {
    folder.put(name, gzip);
    EXPECT_EQ(text_of(open({.train = {folder / name}, .val_fraction = 0}).train), "packed text");
  }
  folder.put("t.zst", zstd);
  folder.put("t.xz", pack_xz("packed text"));
  folder.put("inner/t.txt.gz", gzip);
  for (const char* name : {"t.zst", "t.xz", "inner"}) {
    EXPECT_EQ(text_of(open({.train = {folder / name}, .val_fraction = 0}).train), "packed text");
  }
}

TEST(Dataset, a_folder_stands_for_its_readable_text_sorted_and_recursive) {
  const ScratchFolder folder;
  folder.put("b.txt", "BB");
  folder.put("a/z.txt", "ZZ");
  folder.put("a/y.h", "YY");
  folder.put("c.txt.xz", pack_xz("CC"));
  folder.put(".git/x", "hidden");
  folder.put("binary", std::string("\0\1", 2));
  folder.put("latin1.h", "caf\xe9");
  folder.put("shard.bin", "\1\2");
  folder.put("empty", "");
  std::filesystem::create_symlink(folder / "b.txt", folder / "link");
  std::vector<std::string> told;
  const Log log([&](LogLevel, const std::string& line) { told.push_back(line); });
  const Dataset data = open({.train = {folder.path()}, .val_fraction = 0, .log = log});
  const std::string all = "[data] '" + folder.path() + "': ";
  EXPECT_EQ(told, (std::vector<std::string>{
                      all + "2 of 8 files are not read, as they are damaged or no UTF-8 text",
                      all + "1 of 8 files are not read, as they are token shards beside text (" +
                          (folder / "shard.bin") + ")",
                      all + "1 symbolic links are not followed"}));
  EXPECT_EQ(text_of(data.train), "YYZZBBCC");
  EXPECT_EQ(starts_of(data.train), "^.^.^.^.");
  EXPECT_EQ(data.val.n_tokens(), 0);
  EXPECT_EQ(data.n_skipped, 3);
  EXPECT_EQ(data.n_sources, 1);
}

TEST(Dataset, a_folder_without_text_stands_for_its_shards) {
  const ScratchFolder folder;
  folder.put("s/2.npy", std::string("b\0", 2));
  folder.put("s/1.bin", std::string("a\0", 2));
  const Dataset data = open({.train = {folder / "s"}, .val_fraction = 0});
  EXPECT_EQ(text_of(data.train), "ab");
  EXPECT_EQ(data.n_sources, 2);
}

// Its text, and not what `octet tokenize` wrote of its shards.
TEST(Dataset, a_folder_with_shards_within_stands_for_the_text_beside_them) {
  const ScratchFolder folder;
  folder.put("a.txt", "AA");
  folder.put("s/shard-00000.npy", std::string("b\0", 2));
  folder.put("s/shard-00000.ends", std::string("\1\0\0\0\0\0\0\0", 8));
  folder.put("s/tokenize.json", "{}");
  folder.put("t/tokenize.json", "CC");
  const Dataset data = open({.train = {folder.path()}, .val_fraction = 0});
  EXPECT_EQ(text_of(data.train), "AACC");
  EXPECT_EQ(data.n_skipped, 1);
}

TEST(Dataset, no_text_begins_with_a_byte_order_mark) {
  const ScratchFolder folder;
  const std::string marked = "\xEF\xBB\xBF";
  folder.put("f/a.txt", marked + "AA");
  folder.put("b.txt", marked + "BB" + marked);
  const Dataset data = open({.train = {folder / "b.txt", folder / "f"}, .val_fraction = 0});
  EXPECT_EQ(text_of(data.train), "BB" + marked + "AA");
}

TEST(Dataset, the_end_of_train_is_held_out_and_validates_unless_val_is_given) {
  const ScratchFolder folder;
  const std::string a = folder.put("a", "0123456789"), b = folder.put("b", "abcdefghij");
  const Dataset held = open({.train = {a, b}, .val_fraction = 0.25});
  EXPECT_EQ(text_of(held.train), "0123456789abcde");
  EXPECT_EQ(text_of(held.val), "fghij");
  const Dataset given = open({.train = {a}, .val = {b}, .val_fraction = 0});
  EXPECT_EQ(text_of(given.train), "0123456789");
  EXPECT_EQ(text_of(given.val), "abcdefghij");
  const Dataset both = open({.train = {a}, .val = {b}, .val_fraction = 0.25});
  EXPECT_EQ(text_of(both.train), "01234567");  // what a run held out stays so
  EXPECT_EQ(text_of(both.val), "abcdefghij");
}

TEST(Dataset, whole_documents_are_held_out_where_there_are_several) {
  const ScratchFolder folder;
  const std::string a = folder.put("a", "0123456789"), b = folder.put("b", "abcdefghij"),
                    c = folder.put("c", "xyz");
  const auto held_out = [&](std::vector<std::string> paths, double share) {
    return text_of(
        open({.train = std::move(paths), .val_fraction = share, .hold_out = HoldOut::documents})
            .val);
  };
  EXPECT_EQ(held_out({a, b}, 0.25), "abcdefghij");  // the end of a is as near as that of b
  EXPECT_EQ(held_out({a, b, c}, 0.1), "xyz");
  EXPECT_EQ(held_out({a, b, c}, 0.45), "abcdefghijxyz");
  EXPECT_EQ(held_out({a}, 0.2), "89");  // a single one is cut
  EXPECT_EQ(held_out({a, b}, 0), "");
}

TEST(Dataset, separators_cut_documents_and_strip_white_space) {
  const ScratchFolder folder;
  const std::string path = folder.put("t", "one\n<|e|>\n two <|e|> \n<|e|>three");
  const Dataset data = open({.train = {path}, .val_fraction = 0, .document_separator = "<|e|>"});
  EXPECT_EQ(text_of(data.train), "onetwothree");
  EXPECT_EQ(starts_of(data.train), "^..^..^....");
}

TEST(Dataset, any_part_of_the_stream_reads_like_the_whole) {
  const ScratchFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 7; ++i) {
    paths.push_back(folder.put(fmt::format("{}", i), std::string(static_cast<size_t>(i * i % 5),
                                                                 static_cast<char>('a' + i))));
  }
  const TokenStream stream = open({.train = paths, .val_fraction = 0}).train;
  const std::string text = text_of(stream), starts = starts_of(stream);
  for (int64_t begin = 0; begin <= stream.n_tokens(); ++begin) {
    for (int64_t end = begin; end <= stream.n_tokens(); ++end) {
      const auto first = static_cast<size_t>(begin), n = static_cast<size_t>(end - begin);
      EXPECT_EQ(text_of(stream.slice(begin, end)), text.substr(first, n));
      EXPECT_EQ(starts_of(stream.slice(begin, end)), starts.substr(first, n));
    }
  }
}

TEST(Dataset, bad_paths_are_refused_with_one_line) {
  const ScratchFolder folder;
  const std::string binary = folder.put("binary", std::string("\0\1", 2));
  const std::string one = folder.put("one", "x");
  const std::string long_text = folder.put("long", "0123456789");
  folder.put("only/binary", std::string("\0\1", 2));
  const struct {
    DatasetOptions options;
    std::string error;
  } cases[] = {
      {{.train = {folder / "none"}}, "[data] 'DIR/none': expected a file or a folder, got neither"},
      {{.train = {binary}},
       "[data] 'DIR/binary': expected UTF-8 text, .gz, .xz, .zst, .npy or .bin, got other data"},
      {{.train = {folder / "only"}},
       "[data] 'DIR/only': expected text files or token shards, got none"},
      {{.train = {one}}, "[data] expected at least 2 tokens, got 1 of 1 in 'DIR/one'"},
      {{.train = {}}, "[data] expected at least 2 tokens, got 0 of 0 in no file"},
      {{.train = {long_text, long_text}, .max_text_bytes = 15},
       "[data] DIR/long: expected at most 5 bytes of text, got more"},
      {{.train = {long_text}, .val_fraction = 1.0},
       "[data] val_fraction must be from 0 to below 1, got 1"},
  };
  for (const auto& [options, error] : cases) {
    EXPECT_EQ(error_of([&, &options = options] { open(options); }, folder.path()), error);
  }
}

}  // namespace
}  // namespace octet::dataset_test
