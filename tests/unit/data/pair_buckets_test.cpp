// Batches of about equal tokens of rows of two texts.
#include <gtest/gtest.h>

#include <map>

#include "data/packing.h"
#include "data/row_plan.h"
#include "data/source_rows.h"
#include "unit/base/error_of.h"

namespace octet::data_pair_buckets_test {
namespace {

using test::error_of;

constexpr int64_t kSeq = 64, kSource = 80, kPairs = 517;

// Pair i's target begins with i + 2, its source with i + 3.
std::shared_ptr<const RowSource> pairs(int64_t n = kPairs) {
  SourceRows rows;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t n_target = 1 + i * i % 61,
                  n_source = std::min(kSource, 1 + n_target * 5 / 4 + i % 3);
    std::vector<int32_t> target(static_cast<size_t>(n_target), 1),
        source(static_cast<size_t>(n_source), 1);
    target.front() = static_cast<int32_t>(i + 2), source.front() = static_cast<int32_t>(i + 3);
    rows.add(source, target);
  }
  return source_rows(std::move(rows),
                     {.source = {.name = "source", .per = Per::row, .inner = {kSource}},
                      .length = {.name = "source_length", .per = Per::row},
                      .labels = token_labels_input()});
}

RowOptions options_of(int64_t buckets, int64_t batch = 6, int64_t batches = 3) {
  return {.seq = kSeq,
          .seed = 5,
          .packing = Packing::single,
          .buckets = buckets,
          .step_rows = batch * batches,
          .step_batches = batches};
}

TEST(PairBuckets, sizes_are_those_of_least_padding) {
  // Up to 16, 32, 48 and 64 tokens of the longer side the longest are 16 + 16, 32 + 16, 48 + 32
  // and 64 + 64: 2 x 32 + 3 x 128 = 448, 3 x 48 + 2 x 128 = 400, 4 x 80 + 128 = 448.
  const std::vector<TextLengths> rows = {{5, 9}, {60, 64}, {16, 12}, {17, 3}, {40, 30}};
  const RowSize full{.rows = 7, .seq = 64, .source = 100};
  EXPECT_EQ(batch_sizes(rows, full, 1), (std::vector<RowSize>{{7, 64, 64}}));
  EXPECT_EQ(batch_sizes(rows, full, 2), (std::vector<RowSize>{{14, 32, 16}, {7, 64, 64}}));
  EXPECT_EQ(batch_sizes(rows, full, 8),
            (std::vector<RowSize>{{28, 16, 16}, {14, 32, 16}, {9, 48, 32}, {7, 64, 64}}));
  EXPECT_EQ(batch_sizes(std::vector<TextLengths>{{3, 70}}, {.rows = 2, .seq = 10, .source = 75}, 3),
            (std::vector<RowSize>{{2, 10, 75}}));
}

// Counts the pair of each row of a step, by the target's label; fillers have none.
void count_rows(const Batch& batch, std::map<int32_t, int>& seen, int64_t& n_fillers) {
  const int64_t n_source = batch.find("source")->spec.n_inner();
  for (int64_t row = 0; row < batch.batch; ++row) {
    const int32_t pair = batch.ints("labels")[static_cast<size_t>(row * batch.seq)] - 2;
    const int32_t n = batch.ints("source_length")[static_cast<size_t>(row)];
    ASSERT_GE(n, 1);  // of fillers, too: no query is without a key
    ASSERT_LE(n, n_source);
    if (pair < 0) {
      ++n_fillers;
      continue;
    }
    ++seen[pair];
    ASSERT_EQ(batch.ints("source")[static_cast<size_t>(row * n_source)], pair + 3);
  }
}

TEST(PairBuckets, each_epoch_reads_every_pair_once_in_batches_of_at_most_the_tokens_of_full_ones) {
  RowLoader loader(pairs(), options_of(4));
  const std::vector<RowSize>& sizes = loader.plan().sizes();
  ASSERT_EQ(sizes.size(), 4U);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<int32_t, int> seen;
    int64_t n_fillers = 0, n_steps = 0, n_labels = 0, n_counted = 0;
    for (; loader.epoch() == epoch; ++n_steps) {
      const int64_t n_rows = loader.batch_rows(6);
      ASSERT_EQ(loader.step_rows(), 3 * n_rows);
      const RowCounts counts = loader.count(loader.step_rows());
      n_counted += counts.n_labels();
      int64_t step_labels = 0, n_held = 0;
      for (int64_t i = 0; i < 3; ++i) {
        const Batch batch = loader.peek(i * n_rows, n_rows);
        EXPECT_NE(std::ranges::find(
                      sizes, RowSize{n_rows, batch.seq, batch.find("source")->spec.n_inner()}),
                  sizes.end());
        EXPECT_LE(n_rows * batch.seq, 6 * kSeq);
        EXPECT_LE(n_rows * batch.find("source")->spec.n_inner(), 6 * kSource);
        count_rows(batch, seen, n_fillers);
        step_labels += batch.n_labels();
        n_held += batch.n_items("rows");
      }
      EXPECT_EQ(counts.n_labels(), step_labels);
      EXPECT_EQ(counts.n_tokens, step_labels);
      EXPECT_EQ(RowCounts::count_of(counts.items, "rows"), n_held);
      EXPECT_EQ(counts.n_padded_tokens, 3 * n_rows * loader.peek(0, n_rows).seq);
      n_labels += step_labels;
      loader.advance(loader.step_rows());
    }
    EXPECT_EQ(std::ssize(seen), kPairs);
    for (const auto& [pair, n] : seen) ASSERT_EQ(n, 1) << pair;
    EXPECT_EQ(n_steps, loader.plan().steps_of_epoch(epoch));
    EXPECT_EQ(n_labels, n_counted);
    EXPECT_LT(n_fillers, 3 * sizes.front().rows);  // of the last step alone
  }
  EXPECT_LT(loader.plan().report().n_padded_tokens, 0.75 * kPairs * (kSeq + kSource));
  EXPECT_EQ(loader.plan().report().n_rows, kPairs);
}

TEST(PairBuckets, a_step_depends_on_the_seed_and_not_on_who_reads_its_batches) {
  const RowLoader one(pairs(), options_of(3)), same(pairs(), options_of(3));
  const int64_t n = one.batch_rows(6);
  EXPECT_EQ(one.peek(n, n).ints("source"), same.peek(n, n).ints("source"));
  RowOptions other = options_of(3);
  other.seed = 6;
  const RowLoader shuffled(pairs(), other);
  EXPECT_NE(one.peek(0, 6).ints("source_length"), shuffled.peek(0, 6).ints("source_length"));
  std::vector<int32_t> parts;
  for (int64_t i = 0; i < 3; ++i) {
    const Batch part = one.peek(i * n, n);
    parts.insert(parts.end(), part.ints("labels").begin(), part.ints("labels").end());
  }
  EXPECT_EQ(one.peek(0, 3 * n).ints("labels"), parts);
}

TEST(PairBuckets, a_state_restores_any_step) {
  RowLoader loader(pairs(), options_of(4));
  for (int i = 0; i < 25; ++i) {
    loader.advance(loader.step_rows());
    RowLoader other(pairs(), options_of(4));
    other.restore(loader.state());
    EXPECT_EQ(other.peek(0, 6).ints("source"), loader.peek(0, 6).ints("source"));
    EXPECT_EQ(other.state(), loader.state());
  }
  EXPECT_GT(loader.epoch(), 0);
  RowLoader other(pairs(), options_of(4, 9, 2));
  EXPECT_EQ(error_of([&] { other.restore(loader.state()); }),
            "[data] 'rows' must stay as in the checkpoint: expected single in 4 buckets by tokens, "
            "18 a step in 3 batches, got single in 4 buckets by tokens, 18 a step in 2 batches");
  LoaderState odd = loader.state();
  odd["position"] = "1";
  RowLoader damaged(pairs(), options_of(4));
  EXPECT_EQ(error_of([&] { damaged.restore(odd); }),
            "[data] loader state: 'position' must be the first row of a step, got 1");
}

// Fewer pairs than a step has rows.
TEST(PairBuckets, a_single_pair_fills_a_step) {
  const RowLoader loader(pairs(1), options_of(8));
  const Batch step = loader.peek(0, loader.step_rows());
  EXPECT_EQ(step.n_labels(), 1);
  EXPECT_EQ(std::ssize(step.fillers), loader.step_rows() - 1);
  EXPECT_EQ(loader.plan().rows_of_epoch(0), loader.step_rows());
}

}  // namespace
}  // namespace octet::data_pair_buckets_test
