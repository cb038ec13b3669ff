#include "data/masked_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "data/rows.h"
#include "unit/base/error_of.h"

namespace octet::data_masked_tokens_test {
namespace {

using MaskTokens = std::vector<int32_t>;

constexpr int32_t kMaskToken = 4;
const MaskingOptions kMasking = {
    .seed = 7, .mask_token = kMaskToken, .vocab = 1000, .special_tokens = {0, 1, 2, 3, kMaskToken}};

// Every fourth token is special.
MaskTokens masking_row(int64_t row, size_t n) {
  MaskTokens tokens(n);
  for (size_t i = 0; i < n; ++i) {
    tokens[i] = i % 4 == 3 ? static_cast<int32_t>(i / 4 % 4)
                           : static_cast<int32_t>(5 + (static_cast<size_t>(row) * 31 + i) % 995);
  }
  return tokens;
}

struct MaskCounts {
  int64_t eligible = 0, chosen = 0, masked = 0, random = 0, kept = 0;
};

MaskCounts count_of(const TokenMasking& masking, int64_t rows, size_t n) {
  MaskCounts counts;
  for (int64_t row = 0; row < rows; ++row) {
    const MaskTokens tokens = masking_row(row, n);
    const MaskedRow masked = masking.mask(tokens, row);
    for (size_t i = 0; i < n; ++i) {
      if (tokens[i] > kMaskToken) ++counts.eligible;
      if (masked.labels[i] == kIgnoredLabel) {
        EXPECT_EQ(masked.tokens[i], tokens[i]);  // what is not predicted stays
        continue;
      }
      EXPECT_GT(tokens[i], kMaskToken) << "a special token was chosen";
      EXPECT_EQ(masked.labels[i], tokens[i]);
      ++counts.chosen;
      if (masked.tokens[i] == kMaskToken) {
        ++counts.masked;
      } else if (masked.tokens[i] == tokens[i]) {
        ++counts.kept;
      } else {
        ++counts.random;
      }
    }
  }
  return counts;
}

// Five standard deviations of a binomial share: one run in 1.7 million fails by chance, and the
// numbers are always the same.
void expect_share(int64_t n_hit, int64_t n, double share) {
  const auto trials = static_cast<double>(n);
  EXPECT_NEAR(static_cast<double>(n_hit) / trials, share,
              5 * std::sqrt(share * (1 - share) / trials));
}

TEST(TokenMasking, chooses_15_of_100_and_parts_them_80_10_10) {
  const MaskCounts counts = count_of(TokenMasking(kMasking), 400, 1000);
  EXPECT_EQ(counts.eligible, 300'000);
  expect_share(counts.chosen, counts.eligible, 0.15);
  // A random token is the mask or the token itself once in 1,000 each.
  expect_share(counts.masked, counts.chosen, 0.8 + 0.1 * 0.001);
  expect_share(counts.random, counts.chosen, 0.1 * 0.998);
  expect_share(counts.kept, counts.chosen, 0.1 + 0.1 * 0.001);
}

TEST(TokenMasking, shares_of_nothing_and_of_all_are_exact) {
  MaskingOptions options = kMasking;
  options.chosen = 0;
  EXPECT_EQ(count_of(TokenMasking(options), 20, 500).chosen, 0);
  options.chosen = 1;
  options.masked = 1;
  options.random = 0;
  const MaskCounts all = count_of(TokenMasking(options), 20, 500);
  EXPECT_EQ(all.masked, all.eligible);
  options.masked = 0;
  EXPECT_EQ(count_of(TokenMasking(options), 20, 500).kept, all.eligible);
  options.masked = 0.3;
  options.random = 0.7;
  const MaskCounts parted = count_of(TokenMasking(options), 20, 500);
  EXPECT_EQ(parted.chosen, parted.eligible);
  EXPECT_LT(parted.kept, parted.eligible / 200);  // random tokens that are the token itself
}

// Each place's token follows from its own words alone: the stated thresholds, bit for bit.
TEST(TokenMasking, follows_the_counted_words_of_seed_row_and_place) {
  const TokenMasking masking(kMasking);
  const uint64_t seed = 7 ^ name_hash("masked tokens");
  const PhiloxKey key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const int64_t row = (int64_t{1} << 33) + 5;
  const MaskTokens tokens(2000, 77);
  const MaskedRow masked = masking.mask(tokens, row);
  for (size_t place = 0; place < tokens.size(); ++place) {
    const PhiloxBlock words = philox(key, static_cast<uint64_t>(row), place);
    const double chosen = words.word[0] * 0x1p-32, part = words.word[1] * 0x1p-32;
    const auto other = static_cast<int32_t>(words.word[2] * uint64_t{1000} >> 32);
    EXPECT_EQ(masked.labels[place], chosen < 0.15 ? 77 : kIgnoredLabel);
    const int32_t becomes = part < 0.8 ? kMaskToken : part < 0.9 ? other : 77;
    EXPECT_EQ(masked.tokens[place], chosen < 0.15 ? becomes : 77);
  }
}

TEST(TokenMasking, a_row_is_masked_alike_from_any_start_and_otherwise_by_other_seeds_and_rows) {
  const TokenMasking masking(kMasking), again(kMasking);
  MaskingOptions other = kMasking;
  other.seed = 8;
  const MaskTokens tokens(300, 50);
  for (int64_t row = 0; row < 5; ++row) masking.mask(tokens, row);
  const MaskedRow first = masking.mask(tokens, 5), resumed = again.mask(tokens, 5);
  EXPECT_EQ(first.tokens, resumed.tokens);
  EXPECT_EQ(first.labels, resumed.labels);
  EXPECT_NE(first.labels, masking.mask(tokens, 6).labels);
  EXPECT_NE(first.labels, TokenMasking(other).mask(tokens, 5).labels);
  // A row that is shorter is the beginning of the longer one's.
  const MaskedRow shorter = masking.mask(MaskTokens(100, 50), 5);
  EXPECT_TRUE(std::equal(shorter.tokens.begin(), shorter.tokens.end(), first.tokens.begin()));
}

TEST(TokenMasking, random_tokens_take_all_of_the_vocabulary_alike) {
  MaskingOptions options = {.seed = 1, .mask_token = 0, .vocab = 10};
  options.chosen = 1;
  options.masked = 0;
  options.random = 1;
  const MaskedRow masked = TokenMasking(options).mask(MaskTokens(100'000, 9), 0);
  std::vector<int64_t> n_each(10);
  for (const int32_t token : masked.tokens) ++n_each.at(static_cast<size_t>(token));
  for (const int64_t n : n_each) expect_share(n, 100'000, 0.1);
}

TEST(TokenMasking, what_cannot_be_is_one_line) {
  const auto error = [](auto change) {
    MaskingOptions options = kMasking;
    change(options);
    return test::error_of([&] { TokenMasking{options}; });
  };
  EXPECT_EQ(error([](MaskingOptions& of) { of.vocab = 0; }),
            "[masking] expected a vocabulary from 1 to 2147483647, got 0");
  EXPECT_EQ(error([](MaskingOptions& of) { of.mask_token = 1000; }),
            "[masking] expected mask and special tokens from 0 to 999, got 1000");
  EXPECT_EQ(error([](MaskingOptions& of) { of.special_tokens = {-1}; }),
            "[masking] expected mask and special tokens from 0 to 999, got -1");
  EXPECT_EQ(error([](MaskingOptions& of) { of.random = 0.3; }),
            "[masking] expected shares from 0 to 1, masked and random together as well, got chosen "
            "0.15, masked 0.8, random 0.3");
  EXPECT_NE(error([](MaskingOptions& of) { of.chosen = std::nan(""); }), "no error");
  EXPECT_EQ(test::error_of([] {
              TokenMasking(kMasking).mask(MaskTokens{1, 1000}, 0);
            }),
            "[masking] expected tokens from 0 to 999, got 1000");
}

}  // namespace
}  // namespace octet::data_masked_tokens_test
