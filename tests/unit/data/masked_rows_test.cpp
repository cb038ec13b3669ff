#include "data/masked_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data/row_plan.h"
#include "unit/base/error_of.h"
#include "unit/data/documents.h"

namespace octet::data_masked_rows_test {
namespace {

using test::error_of;
using test::stream_of;
using testing::Each;
using testing::ElementsAre;

constexpr int32_t kCls = 1, kPad = 190, kSep = 191, kMask = 192, kVocab = 200;

MaskedRowsOptions options_of(double chosen, uint64_t seed = 5) {
  InputSpec labels = token_labels_input();
  labels.bound = kVocab;
  return {.seq = 8,
          .before = {kCls},
          .behind = {kSep},
          .padding = kPad,
          .labels = labels,
          .masking = {.seed = seed,
                      .mask_token = kMask,
                      .vocab = kVocab,
                      .special_tokens = {kPad, kCls, kSep, kMask},
                      .chosen = chosen}};
}

std::vector<int32_t> row_of(std::vector<int32_t> values, int64_t row) {
  return {values.begin() + row * 8, values.begin() + row * 8 + 8};
}

TEST(MaskedRows, windows_stand_between_the_tokens_around_a_text) {
  const auto rows = masked_rows(stream_of({16}), options_of(0));
  ASSERT_EQ(rows->n_samples(), 3);
  const Batch batch = SampleEval(rows, {.seq = 8}).at(0, 3);
  const std::vector<int32_t>& tokens = batch.ints("tokens");
  // The stream's own first token is not there twice.
  EXPECT_THAT(row_of(tokens, 0), ElementsAre(kCls, 2, 3, 4, 5, 6, kSep, kPad));
  EXPECT_THAT(row_of(tokens, 1), ElementsAre(kCls, 7, 8, 9, 10, 11, 12, kSep));
  EXPECT_THAT(row_of(tokens, 2), ElementsAre(kCls, 13, 14, 15, 16, kSep, kPad, kPad));
  EXPECT_THAT(batch.lengths, ElementsAre(7, 8, 6));
  EXPECT_THAT(batch.ints("labels"), Each(kIgnoredLabel));
}

TEST(MaskedRows, all_but_special_tokens_are_hidden_where_the_share_is_1) {
  MaskedRowsOptions options = options_of(1);
  options.masking.masked = 1;
  options.masking.random = 0;
  const Batch batch = SampleEval(masked_rows(stream_of({16}), options), {.seq = 8}).at(0, 3);
  EXPECT_THAT(row_of(batch.ints("tokens"), 2),
              ElementsAre(kCls, kMask, kMask, kMask, kMask, kSep, kPad, kPad));
  EXPECT_THAT(row_of(batch.ints("labels"), 2), ElementsAre(-1, 13, 14, 15, 16, -1, -1, -1));
}

TEST(MaskedRows, epochs_hide_other_tokens_and_counts_are_those_of_what_is_drawn) {
  const auto rows = masked_rows(stream_of({100}), options_of(0.3));
  RowLoader loader(rows, {.seq = 8, .order = WindowOrder::sequential, .seed = 5});
  const int64_t n = rows->n_samples();
  std::set<std::vector<int32_t>> different;
  std::set<int64_t> counts;
  for (int epoch = 0; epoch < 4; ++epoch) {
    const Batch batch = loader.peek(0, n);
    EXPECT_EQ(loader.count(n).n_labels(), batch.n_labels());
    different.insert(batch.ints("labels"));
    counts.insert(batch.n_labels());
    loader.advance(n);
  }
  EXPECT_EQ(different.size(), 4u);
  EXPECT_GT(counts.size(), 1u);
}

TEST(MaskedRows, a_restored_loader_hides_the_same_tokens) {
  const auto rows = masked_rows(stream_of({100}), options_of(0.3));
  const RowOptions options{.seq = 8, .seed = 5};
  RowLoader loader(rows, options), other(rows, options);
  loader.advance(23);
  other.restore(loader.state());
  EXPECT_EQ(other.peek(0, 5).ints("tokens"), loader.peek(0, 5).ints("tokens"));
  EXPECT_EQ(other.peek(3, 2).ints("labels"), loader.peek(3, 2).ints("labels"));
}

TEST(MaskedRows, evaluations_hide_the_same_tokens_for_every_seed) {
  const auto labels = [](uint64_t seed) {
    return SampleEval(masked_rows(stream_of({100}), options_of(0.3, seed)), {.seq = 8})
        .at(0, 9)
        .ints("labels");
  };
  EXPECT_EQ(labels(5), labels(6));
  RowLoader first(masked_rows(stream_of({100}), options_of(0.3, 5)), {.seq = 8, .seed = 5}),
      second(masked_rows(stream_of({100}), options_of(0.3, 6)), {.seq = 8, .seed = 5});
  EXPECT_NE(first.peek(0, 9).ints("labels"), second.peek(0, 9).ints("labels"));
}

TEST(MaskedRows, rows_without_room_are_refused) {
  MaskedRowsOptions options = options_of(0.15);
  options.seq = 2;
  EXPECT_EQ(error_of([&] { masked_rows(stream_of({9}), options); }),
            "model.seq: expected more than the 2 tokens around a text, got 2");
}

}  // namespace
}  // namespace octet::data_masked_rows_test
