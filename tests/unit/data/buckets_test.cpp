// Rows of a few lengths, and steps of rows of one length.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "data/packing.h"
#include "unit/base/error_of.h"
#include "unit/data/documents.h"

namespace octet::data_buckets_test {
namespace {

using test::error_of;
using test::many_lengths;
using test::stream_of;

RowOptions options_of(int64_t step_rows, int64_t buckets = 3) {
  return {.seq = 100,
          .boundaries = DocumentBoundaries::isolate,
          .seed = 5,
          .packing = Packing::single,
          .buckets = buckets,
          .step_rows = step_rows};
}

TEST(Buckets, lengths_are_those_of_least_padding) {
  // Two at 16 and 64: 5 x 16 + 2 x 64 = 208; 32 and 64: 6 x 32 + 64 = 256; 48 and 64: 6 x 48 + 64.
  const std::vector<int64_t> places = {3, 9, 12, 16, 1, 40, 50};
  EXPECT_EQ(row_lengths(places, 64, 1), (std::vector<int64_t>{64}));
  EXPECT_EQ(row_lengths(places, 64, 2), (std::vector<int64_t>{16, 64}));
  EXPECT_EQ(row_lengths(places, 64, 3), (std::vector<int64_t>{16, 48, 64}));
  EXPECT_EQ(row_lengths(places, 64, 8), (std::vector<int64_t>{16, 48, 64}));
  EXPECT_EQ(row_lengths(places, 50, 2), (std::vector<int64_t>{16, 50}));
  EXPECT_EQ(row_lengths(std::vector<int64_t>{20}, 64, 2), (std::vector<int64_t>{32}));
}

// Against all pairs of lengths.
TEST(Buckets, no_other_lengths_pad_less) {
  std::vector<int64_t> places = many_lengths();
  for (int64_t& n : places) n = 1 + n * n % 97;
  const auto cost = [&](const std::vector<int64_t>& lengths) {
    int64_t sum = 0;
    for (const int64_t n : places) sum += *std::ranges::lower_bound(lengths, n);
    return sum;
  };
  const int64_t found = cost(row_lengths(places, 112, 3));
  for (int64_t a = 16; a < 112; a += 16) {
    for (int64_t b = a + 16; b < 112; b += 16) EXPECT_LE(found, cost({a, b, 112})) << a << " " << b;
  }
}

// Documents are told by their first tokens.
TEST(Buckets, each_epoch_reads_every_document_once) {
  const std::vector<int64_t> lengths = many_lengths();
  for (const int64_t step_rows : {1, 7, 64}) {
    RowLoader loader(stream_of(lengths), options_of(step_rows));
    std::vector<std::map<int32_t, int>> seen(4);
    int64_t row = 0;
    while (loader.epoch() < 3) {
      const Batch batch = loader.peek(0, step_rows);
      for (int64_t i = 0; i < step_rows; ++i, ++row) {
        const auto epoch = static_cast<size_t>(row / static_cast<int64_t>(lengths.size()));
        ++seen[epoch][batch.ints("tokens")[static_cast<size_t>(i * batch.seq)]];
      }
      loader.advance(step_rows);
    }
    for (size_t epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(seen[epoch].size(), lengths.size());
      for (const auto& [first, n] : seen[epoch]) ASSERT_EQ(n, 1) << first;
    }
  }
}

TEST(Buckets, rows_of_a_step_are_alike) {
  const RowLoader single(stream_of(many_lengths()), options_of(16, 1));
  EXPECT_EQ(single.plan().report().n_padded_tokens, 100 * 10'000);
  const RowLoader loader(stream_of(many_lengths()), options_of(16));
  ASSERT_EQ(loader.lengths().size(), 3u);
  EXPECT_LT(loader.plan().report().padding_share(), 0.5 * single.plan().report().padding_share());
  // At most as many of the first epoch's steps are mixed as there are lengths.
  int64_t n_mixed = 0, n_padded_tokens = 0, n_used = 0;
  for (int64_t first = 0; first < 10'000; first += 16) {
    const Batch step = loader.peek(first, 16);
    const std::vector<int64_t> lengths = loader.lengths();
    const auto at = std::ranges::find(lengths, step.seq);
    ASSERT_NE(at, lengths.end());
    const int64_t shorter = at == lengths.begin() ? 0 : *(at - 1);
    bool is_mixed = false;
    for (size_t i = 0; i < 16; ++i) {
      const auto row = step.ints("tokens").begin() + static_cast<int64_t>(i) * step.seq;
      const int64_t n = step.seq - std::count(row, row + step.seq, 0);
      n_used += n;
      is_mixed = is_mixed || n <= shorter;
    }
    n_mixed += is_mixed ? 1 : 0;
    n_padded_tokens += 16 * step.seq;
  }
  EXPECT_LE(n_mixed, 3);
  EXPECT_EQ(loader.plan().report().n_padded_tokens, n_padded_tokens);
  EXPECT_EQ(loader.plan().report().n_used, n_used);
}

TEST(Buckets, any_split_of_a_step_gives_the_same_rows) {
  RowLoader loader(stream_of(many_lengths()), options_of(12));
  for (int step = 0; step < 900; ++step, loader.advance(12)) {  // past the end of an epoch
    const Batch whole = loader.peek(0, 12);
    for (const int64_t n : {1, 4, 6}) {
      for (int64_t first = 0; first < 12; first += n) {
        const Batch part = loader.peek(first, n);
        ASSERT_EQ(part.seq, whole.seq);
        ASSERT_TRUE(std::equal(part.ints("labels").begin(), part.ints("labels").end(),
                               whole.ints("labels").begin() + first * whole.seq));
      }
    }
  }
  EXPECT_EQ(loader.epoch(), 1);
}

TEST(Buckets, counts_tell_what_a_step_computes) {
  const RowLoader loader(stream_of(many_lengths()), options_of(12));
  const Batch step = loader.peek(0, 12);
  const RowCounts counts = loader.count(12);
  EXPECT_EQ(counts.n_padded_tokens, 12 * step.seq);
  EXPECT_EQ(counts.n_labels(), step.n_labels());
  EXPECT_EQ(counts.n_tokens, 12 * step.seq - std::ranges::count(step.ints("tokens"), 0));
}

TEST(Buckets, a_state_restores_any_step) {
  RowLoader loader(stream_of(many_lengths()), options_of(12));
  for (int i = 0; i < 30; ++i) {
    loader.advance(12 * 83);
    RowLoader other(stream_of(many_lengths()), options_of(12));
    other.restore(loader.state());
    EXPECT_EQ(other.peek(0, 12).ints("tokens"), loader.peek(0, 12).ints("tokens"));
    EXPECT_EQ(other.state(), loader.state());
  }
  EXPECT_GT(loader.epoch(), 1);
  RowLoader other(stream_of(many_lengths()), options_of(24));
  EXPECT_EQ(error_of([&] { other.restore(loader.state()); }),
            "[data] 'rows' must stay as in the checkpoint: expected single in 3 buckets, 12 a "
            "step, got single in 3 buckets, 24 a step");
}

}  // namespace
}  // namespace octet::data_buckets_test
