#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <sstream>

#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::tokenizer_cases {
namespace {

using test::error_of;
using test::ScratchFolder;

const std::string kData = std::string(OCTET_TEST_DATA) + "/data/";

std::string token(std::string_view text, float score) {
  std::string bytes(8, '\0');
  const auto length = static_cast<int32_t>(text.size());
  std::memcpy(bytes.data(), &score, 4);
  std::memcpy(bytes.data() + 4, &length, 4);
  return bytes + std::string(text);
}

// The special tokens, the bytes, and the given ones from id 259 on.
std::string vocabulary(const std::vector<std::pair<std::string, float>>& tokens) {
  std::string bytes("\x07\0\0\0", 4);
  bytes += token("<unk>", 0) + token("\n<s>\n", 0) + token("\n</s>\n", 0);
  for (int i = 0; i < 256; ++i) bytes += token(fmt::format("<0x{:02X}>", i), 0);
  for (const auto& [text, score] : tokens) bytes += token(text, score);
  return bytes;
}

TEST(ByteTokenizer, round_trips_all_bytes) {
  const auto tokenizer = byte_tokenizer();
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  const auto ids = tokenizer->encode(all);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_FALSE(tokenizer->bos() || tokenizer->eos());
  EXPECT_EQ(error_of([&] { tokenizer->token_bytes(256); }),
            "[tokenizer] bytes: expected ids from 0 to 255, got 256");
}

TEST(Llama2cTokenizer, merges_the_best_pair_first_and_the_leftmost_of_equals) {
  const ScratchFolder folder;
  const std::string path = folder.put("t.bin", vocabulary({{" ", -1},
                                                           {"a", -2},
                                                           {"b", -3},
                                                           {"c", -4},
                                                           {"ab", -5},
                                                           {"bc", -4.5f},
                                                           {"aa", -6},
                                                           {"é", -7},
                                                           {" a", -8}}));
  const auto tokenizer = make_tokenizer(posix_files(), path);
  EXPECT_EQ(tokenizer->vocab_size(), 268);
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{267, 264}));       // bc beats ab, then " a"
  EXPECT_EQ(tokenizer->encode("aaa"), (Ids{259, 265, 260}));  // aa at the left, before " a"
  EXPECT_EQ(tokenizer->encode("é€"), (Ids{259, 266, 3 + 0xE2, 3 + 0x82, 3 + 0xAC}));
  EXPECT_EQ(tokenizer->encode("\xff"), (Ids{259, 3 + 0xFF}));
  for (const std::string text : {"abc cba", "é€ z", " two  spaces ", "aaaaabbbccc"}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->bos()), "");
  EXPECT_EQ(tokenizer->token_bytes(3 + 0x41), "A");
  EXPECT_EQ(error_of([&] { tokenizer->token_bytes(-1); }, folder.path()),
            "[tokenizer] DIR/t.bin: expected ids from 0 to 267, got -1");
}

TEST(Llama2cTokenizer, malformed_files_are_refused_with_one_line) {
  const std::string good = vocabulary({{"a", 1}});
  const std::string nan = vocabulary({{"a", std::nanf("")}});
  const struct {
    std::string bytes, error;
  } cases[] = {
      {std::string(4, '\0'), "longest token must be above 0, got 0"},
      {good.substr(0, 10), "token 0: the file ends within it"},
      {good.substr(0, 14), "token 0: expected a length of at most 2, got 5"},
      {good.substr(0, 4 + 13), "expected at least 259 tokens, got 1"},
      {std::string("\x07\0\0\0\0\0\0\0\xff\xff\xff\xff", 12),
       "token 0: expected a length of at most 0, got -1"},
      {nan, "token 259: its score is not a number"},
  };
  const ScratchFolder folder;
  for (const auto& [bytes, error] : cases) {
    const std::string path = folder.put("t.bin", bytes);
    EXPECT_EQ(error_of([&] { make_tokenizer(posix_files(), path); }, folder.path()),
              "[tokenizer] DIR/t.bin: " + error);
  }
  EXPECT_EQ(error_of([&] { make_tokenizer(posix_files(), "wordpiece"); }),
            "[tokenizer] expected 'bytes', a tokenizer's file or a model folder, got 'wordpiece'");
}

// The ids that llama2.c gives for the first 200 stories, bos first, cut at 512.
TEST(Llama2cTokenizer, meets_the_golden_ids_of_200_stories) {
  const std::string model = kData + "tokenizers/tok512/tok512.bin";
  const std::string golden = kData + "weights/stories260K/golden_ids_first200_stories.txt";
  const std::string stories = kData + "text/tinystories/tinystories_train_first2MiB.txt";
  for (const std::string& path : {model, golden, stories}) {
    if (!posix_files().exists(path)) GTEST_SKIP() << "shared test data absent: " << path;
  }
  const auto tokenizer = make_tokenizer(posix_files(), model);
  EXPECT_EQ(tokenizer->vocab_size(), 512);
  const std::string text = posix_files().read_text(stories);
  constexpr std::string_view kSeparator = "<|endoftext|>";
  std::istringstream lines(posix_files().read_text(golden));
  std::string line;
  int n_stories = 0;
  for (size_t at = 0; std::getline(lines, line); ++n_stories) {
    const size_t end = text.find(kSeparator, at);
    ASSERT_NE(end, text.npos);
    std::string story = text.substr(at, end - at);
    at = end + kSeparator.size();
    story.erase(0, story.find_first_not_of(" \n\r\t"));
    story.erase(story.find_last_not_of(" \n\r\t") + 1);
    std::vector<int32_t> ids = tokenizer->encode(story);
    EXPECT_EQ(tokenizer->decode(ids), story);
    ids.insert(ids.begin(), *tokenizer->bos());
    if (ids.size() > 512) ids.resize(512);
    std::istringstream numbers(line);
    const std::vector<int32_t> expected{std::istream_iterator<int32_t>(numbers), {}};
    ASSERT_EQ(ids, expected) << "story " << n_stories;
  }
  EXPECT_EQ(n_stories, 200);
}

}  // namespace
}  // namespace octet::tokenizer_cases
