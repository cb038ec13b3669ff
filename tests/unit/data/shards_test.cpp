#include "data/shards.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_shards_test {
namespace {

using test::error_of;
using test::ScratchFolder;

template <typename Word>
std::string raw(const std::vector<Word>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Word)};
}

std::string npy(int version, const std::string& dictionary, const std::string& data) {
  std::string bytes("\x93NUMPY", 6);
  bytes += static_cast<char>(version);
  bytes += '\0';
  const auto n = static_cast<uint32_t>(dictionary.size());
  bytes += std::string(reinterpret_cast<const char*>(&n), version == 1 ? 2 : 4);
  return bytes + dictionary + data;
}

std::string dictionary(const std::string& descr, const std::string& shape,
                       const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape +
         ", }    \n";
}

std::vector<int32_t> read_all(const TokenSource& source) {
  std::vector<int32_t> tokens(static_cast<size_t>(source.n_tokens()));
  std::vector<uint8_t> starts(tokens.size());
  source.read(0, tokens, starts);
  return tokens;
}

TEST(Shards, every_layout_gives_the_same_tokens) {
  const std::vector<int32_t> expected = {1, 500, 7, 65535, 0};
  const std::string u16 = raw<uint16_t>({1, 500, 7, 65535, 0});
  const std::string u32 = raw<uint32_t>({1, 500, 7, 65535, 0});
  const struct {
    std::string name, bytes;
    ShardOptions options;
  } cases[] = {
      {"olmo16.npy", u16, {.vocab = 65536}},
      {"olmo32.npy", u32, {.vocab = 100278}},
      {"raw16.bin", u16, {}},
      {"raw32.bin", u32, {.width = TokenWidth::u32}},
      {"v1.npy", npy(1, dictionary("<u2", "(5,)"), u16), {.width = TokenWidth::u32}},
      {"v2.npy", npy(2, dictionary("<u4", "(5,)"), u32), {}},
      {"v3.npy", npy(3, dictionary("<i4", "(5,)"), u32), {}},
      {"tight.npy", npy(1, "{'shape':(5,),'fortran_order':False,'descr':'<u2'}", u16), {}},
  };
  const ScratchFolder folder;
  for (const auto& [name, bytes, options] : cases) {
    const auto source = shard_source(posix_files(), folder.put(name, bytes), options);
    EXPECT_EQ(source->n_tokens(), 5) << name;
    EXPECT_EQ(read_all(*source), expected) << name;
  }
}

TEST(Shards, malformed_files_are_refused_with_one_line) {
  const std::string u16 = raw<uint16_t>({1, 2, 3});
  const std::string header = "NumPy header: ";
  const struct {
    std::string bytes, error;
  } cases[] = {
      {"abc", "expected a multiple of 2 bytes, got 3"},
      {npy(4, dictionary("<u2", "(3,)"), u16), header + "expected version 1 to 3, got 4"},
      {std::string("\x93NUMPY", 6), header + "the file ends within it"},
      {std::string("\x93NUMPY\x01\0\x10", 9), header + "the file ends within it"},
      {std::string("\x93NUMPY\x01\0\x10\0{", 11), header + "the file ends within it"},
      {std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12),
       header + "expected at most 65536 bytes, got 4294967295"},
      {npy(1, dictionary("<u2", "(4,)"), u16), "expected 4 elements of 2 bytes, got 6 bytes"},
      {npy(1, dictionary("<u2", "(2,)"), u16), "expected 2 elements of 2 bytes, got 6 bytes"},
      {npy(1, dictionary("<f4", "(3,)"), u16), "expected elements <u2, <u4 or <i4, got <f4"},
      {npy(1, dictionary(">u2", "(3,)"), u16), "expected elements <u2, <u4 or <i4, got >u2"},
      {npy(1, dictionary("<u2", "(3, 1)"), u16), "expected one dimension, got (3,1)"},
      {npy(1, dictionary("<u2", "()"), u16), "expected one dimension, got ()"},
      {npy(1, dictionary("<u2", "(-3,)"), u16), header + "expected lengths below 2^63, got (-3,)"},
      {npy(1, dictionary("<u2", "(99999999999999999999,)"), u16),
       header + "expected lengths below 2^63, got (99999999999999999999,)"},
      {npy(1, dictionary("<u2", "(3,)", "True"), u16), "'fortran_order' must be False, got True"},
      {npy(1, "{'descr': '<u2', 'shape': (3,)}", u16),
       header + "expected key 'fortran_order', got none"},
      {npy(1, "{'descr': '<u2', 'descr': '<u2'}", u16), header + "key 'descr' comes twice"},
      {npy(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), 'x': 1}", u16),
       header + "expected 3 keys, got 4"},
      {npy(1, "[1]", u16), header + "expected '{', got '['"},
      {npy(1, "{", u16), header + "expected ''', got its end"},
      {npy(1, "{'descr", u16), header + "expected one of \"'\", got its end"},
      {npy(1, "{'descr': '<u2'} x", u16), header + "bytes follow the dictionary"},
      {npy(1, "{'descr' '<u2'}", u16), header + "expected ':', got '''"},
  };
  const ScratchFolder folder;
  for (const auto& [bytes, error] : cases) {
    const std::string path = folder.put("x.npy", bytes);
    EXPECT_EQ(error_of([&] { shard_source(posix_files(), path, {}); }, folder.path()),
              "[shard] DIR/x.npy: " + error);
  }
}

TEST(Shards, ids_outside_the_vocabulary_are_found_with_their_position) {
  const ScratchFolder folder;
  const std::string path = folder.put("x.bin", raw<uint16_t>({1, 2, 256, 3}));
  const auto source = shard_source(posix_files(), path, {.vocab = 256});
  EXPECT_EQ(error_of([&] { read_all(*source); }, folder.path()),
            "[shard] DIR/x.bin: token 2 must be from 0 to 255, got 256");
  const std::string negative =
      folder.put("i4.npy", npy(1, dictionary("<i4", "(2,)"), raw<int32_t>({5, -1})));
  EXPECT_EQ(error_of([&] { read_all(*shard_source(posix_files(), negative, {})); }, folder.path()),
            "[shard] DIR/i4.npy: token 1 must be from 0 to 2147483647, got -1");
}

TEST(Shards, documents_start_at_the_front_and_after_each_end_token) {
  const ScratchFolder folder;
  const std::string path = folder.put("x.bin", raw<uint16_t>({5, 0, 6, 7, 0, 8}));
  const auto source = shard_source(posix_files(), path, {.eos = 0});
  const std::vector<uint8_t> expected = {1, 0, 1, 0, 0, 1};
  for (int64_t first = 0; first < 6; ++first) {
    for (int64_t n = 1; first + n <= 6; ++n) {
      std::vector<int32_t> tokens(static_cast<size_t>(n));
      std::vector<uint8_t> starts(tokens.size());
      source->read(first, tokens, starts);
      const auto from = expected.begin() + first;
      EXPECT_EQ(starts, std::vector<uint8_t>(from, from + n)) << first << ", " << n;
    }
  }
}

TEST(Shards, identity_follows_size_and_content) {
  const ScratchFolder folder;
  const auto identity = [&](const std::vector<uint16_t>& ids) {
    return shard_source(posix_files(), folder.put("x.bin", raw(ids)), {})->identity();
  };
  const uint64_t first = identity({1, 2, 3});
  EXPECT_EQ(identity({1, 2, 3}), first);
  EXPECT_EQ(
      shard_source(posix_files(), folder.put("y.bin", raw<uint16_t>({1, 2, 3})), {})->identity(),
      first);
  EXPECT_NE(identity({1, 2, 4}), first);
  EXPECT_NE(identity({1, 2, 3, 0}), first);
}

// A sparse file of 64 GiB: only what is asked for is read.
TEST(Shards, a_shard_larger_than_memory_is_read_in_place) {
  const ScratchFolder folder;
  const std::string path = folder.put("big.bin", "");
  constexpr int64_t kTokens = int64_t{1} << 35;
  std::error_code error;
  std::filesystem::resize_file(path, 2 * kTokens, error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  const auto source = shard_source(posix_files(), path, {});
  EXPECT_EQ(source->n_tokens(), kTokens);
  std::vector<int32_t> tokens(1000, 7);
  std::vector<uint8_t> starts(1000, 7);
  source->read(kTokens - 1000, tokens, starts);
  EXPECT_EQ(tokens, std::vector<int32_t>(1000, 0));
}

}  // namespace
}  // namespace octet::data_shards_test
