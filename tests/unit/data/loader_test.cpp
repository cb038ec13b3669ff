#include "data/row_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "base/philox.h"
#include "data/permutation.h"
#include "unit/base/error_of.h"
#include "unit/data/documents.h"

namespace octet::data_loader_test {
namespace {

using test::error_of;
using test::next;

// Documents of the given lengths; token i of the stream is 10 + i, so that a token tells its
// position.
class Counting : public TokenSource {
 public:
  explicit Counting(std::vector<int64_t> lengths, int32_t base = 10) : base_(base) {
    for (const int64_t length : lengths) {
      starts_.insert(n_tokens_);
      n_tokens_ += length;
    }
  }
  int64_t n_tokens() const override { return n_tokens_; }
  uint64_t identity() const override { return static_cast<uint64_t>(base_); }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> starts) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = base_ + static_cast<int32_t>(first) + static_cast<int32_t>(i);
      starts[i] = starts_.contains(first + static_cast<int64_t>(i));
    }
  }

 private:
  int64_t n_tokens_ = 0;
  std::set<int64_t> starts_;
  int32_t base_;
};

TokenStream numbered_stream(std::vector<int64_t> lengths, int32_t base = 10) {
  return TokenStream({std::make_shared<Counting>(std::move(lengths), base)});
}

TEST(Permutation, visits_every_index_once_and_differs_by_seed_and_epoch) {
  for (const int64_t n : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = Permutation(n, 7, 3)(i);
      EXPECT_TRUE(to >= 0 && to < n);
      seen.insert(to);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), n);
  }
  int same_epoch = 0, same_seed = 0, fixed = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t to = Permutation(1000, 7, 3)(i);
    same_epoch += to == Permutation(1000, 7, 4)(i);
    same_seed += to == Permutation(1000, 8, 3)(i);
    fixed += to == i;
  }
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(fixed, 10);
}

// Chi-squared over a 10 x 10 table of (index, image) of 10,000 elements: 81 degrees of freedom,
// sigma 12.7.
TEST(Permutation, spreads_evenly) {
  double chi2 = 0;
  int counts[10][10] = {};
  for (int64_t i = 0; i < 10'000; ++i) ++counts[i / 1000][Permutation(10'000, 1, 0)(i) / 1000];
  for (const auto& row : counts) {
    for (const int count : row) chi2 += (count - 100.0) * (count - 100.0) / 100.0;
  }
  EXPECT_LT(chi2, 81 + 5 * 12.7);
  EXPECT_GT(chi2, 81 - 5 * 12.7);
}

TEST(Loader, labels_are_the_next_tokens_and_the_last_window_is_padded) {
  RowLoader loader(numbered_stream({8}), {.seq = 3, .order = WindowOrder::sequential});
  EXPECT_EQ(loader.rows_of_epoch(0), 3);
  const Batch batch = next(loader, 3);
  EXPECT_EQ(batch.ints("tokens"), (std::vector<int32_t>{10, 11, 12, 13, 14, 15, 16, 17, 0}));
  EXPECT_EQ(batch.ints("labels"), (std::vector<int32_t>{11, 12, 13, 14, 15, 16, 17, -1, -1}));
  EXPECT_EQ(batch.n_labels(), 7);
  EXPECT_EQ(loader.epoch(), 1);
}

TEST(Loader, document_starts_are_no_labels_when_masked) {
  RowLoader loader(
      numbered_stream({3, 1, 4}),
      {.seq = 7, .order = WindowOrder::sequential, .boundaries = DocumentBoundaries::mask_labels});
  EXPECT_EQ(next(loader, 1).ints("labels"), (std::vector<int32_t>{11, 12, -1, -1, 15, 16, 17}));
}

// So a step knows its labels before it reads its batches, and reads each when it needs it.
TEST(Loader, labels_are_counted_and_batches_shown_without_drawing) {
  for (const WindowOrder order :
       {WindowOrder::sequential, WindowOrder::shuffled, WindowOrder::random}) {
    for (const auto boundaries : {DocumentBoundaries::ignore, DocumentBoundaries::mask_labels}) {
      RowLoader loader(numbered_stream({3, 1, 40, 9}),
                       {.seq = 7, .order = order, .boundaries = boundaries, .seed = 3});
      next(loader, 5);
      const int64_t counted = loader.count(6).n_labels();
      const Batch shown = loader.peek(4, 2);
      EXPECT_EQ(loader.rows_consumed(), 5);
      const Batch first = next(loader, 4), second = next(loader, 2);
      EXPECT_EQ(counted, first.n_labels() + second.n_labels());
      EXPECT_EQ(shown.ints("tokens"), second.ints("tokens"));
      EXPECT_EQ(shown.ints("labels"), second.ints("labels"));
    }
  }
}

// Property: for any length and sequence, one pass predicts every token but the first exactly once.
TEST(Loader, a_pass_predicts_every_token_once_for_any_length_and_sequence) {
  for (const WindowOrder order : {WindowOrder::sequential, WindowOrder::shuffled}) {
    for (const int64_t n : {2, 3, 7, 50, 64, 101}) {
      for (const int64_t seq : {1, 2, 5, 16, 100, 200}) {
        RowLoader loader(numbered_stream({n}), {.seq = seq, .order = order, .seed = 5});
        for (int pass = 0; pass < 2; ++pass) {
          std::multiset<int32_t> labels;
          for (int64_t i = 0; i < loader.rows_of_epoch(0); ++i) {
            const Batch batch = next(loader, 1);
            EXPECT_GE(batch.n_labels(), 1) << "an empty window: " << n << ", " << seq;
            for (size_t t = 0; t < batch.ints("labels").size(); ++t) {
              if (batch.ints("labels")[t] == kIgnoredLabel) continue;
              EXPECT_EQ(batch.ints("labels")[t], batch.ints("tokens")[t] + 1);
              labels.insert(batch.ints("labels")[t]);
            }
          }
          EXPECT_EQ(static_cast<int64_t>(labels.size()), n - 1);
          EXPECT_EQ(std::set<int32_t>(labels.begin(), labels.end()).size(), labels.size());
        }
      }
    }
  }
}

TEST(Loader, windows_do_not_depend_on_how_they_are_cut_into_batches) {
  for (const WindowOrder order :
       {WindowOrder::sequential, WindowOrder::shuffled, WindowOrder::random}) {
    const RowOptions options{.seq = 4, .order = order, .seed = 9};
    RowLoader by_one(numbered_stream({103}), options), by_seven = by_one;
    std::vector<int32_t> a, b;
    for (int i = 0; i < 70; ++i) {
      const Batch batch = next(by_one, 1);
      a.insert(a.end(), batch.ints("tokens").begin(), batch.ints("tokens").end());
    }
    for (int i = 0; i < 10; ++i) {
      const Batch batch = next(by_seven, 7);
      b.insert(b.end(), batch.ints("tokens").begin(), batch.ints("tokens").end());
    }
    EXPECT_EQ(a, b);
  }
}

TEST(Loader, passes_and_seeds_give_different_orders) {
  const auto order = [](uint64_t seed, int pass) {
    RowLoader loader(numbered_stream({1001}), {.seq = 10, .seed = seed});
    Batch batch;
    for (int i = 0; i <= pass; ++i) batch = next(loader, 100);
    return batch.ints("tokens");
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
}

TEST(Loader, random_windows_are_whole_and_cover_both_ends) {
  RowLoader loader(numbered_stream({20}), {.seq = 4, .order = WindowOrder::random, .seed = 3});
  std::set<int32_t> first;
  for (int i = 0; i < 400; ++i) {
    const Batch batch = next(loader, 1);
    EXPECT_EQ(batch.n_labels(), 4);
    first.insert(batch.ints("tokens")[0] - 10);
  }
  EXPECT_EQ(first.size(), 16u);  // 0 to 15
  EXPECT_EQ(*first.rbegin(), 15);
  RowLoader small(numbered_stream({3}), {.seq = 8, .order = WindowOrder::random});
  EXPECT_EQ(next(small, 1).ints("labels"), (std::vector<int32_t>{11, 12, -1, -1, -1, -1, -1, -1}));
}

TEST(Loader, a_restored_loader_goes_on_with_the_same_batches) {
  for (const WindowOrder order :
       {WindowOrder::sequential, WindowOrder::shuffled, WindowOrder::random}) {
    const RowOptions options{.seq = 4, .order = order, .seed = 11};
    for (const int n_before : {0, 1, 5, 26, 27, 60}) {
      RowLoader first(numbered_stream({103}), options);
      for (int i = 0; i < n_before; ++i) next(first, 3);
      RowLoader second(numbered_stream({103}), options);
      second.restore(first.state());
      EXPECT_EQ(second.rows_consumed(), first.rows_consumed());
      EXPECT_EQ(second.state(), first.state());
      for (int i = 0; i < 30; ++i)
        EXPECT_EQ(next(second, 2).ints("tokens"), next(first, 2).ints("tokens"));
    }
  }
}

TEST(Loader, restoring_with_other_data_or_options_is_refused) {
  const RowOptions options{.seq = 4, .seed = 11};
  RowLoader loader(numbered_stream({103}), options);
  next(loader, 2);
  const LoaderState state = loader.state();
  const auto refused = [&](TokenStream stream, RowOptions other, std::string key = "",
                           std::string value = "") {
    auto changed = state;
    if (value == "erase")
      changed.erase(key);
    else if (!key.empty())
      changed[key] = value;
    return error_of([&] { RowLoader(stream, other).restore(changed); });
  };
  EXPECT_EQ(refused(numbered_stream({103}), options), "no error");
  EXPECT_EQ(refused(numbered_stream({104}), options).substr(0, 61),
            "[data] the training data changed: expected 103 tokens of cont");
  EXPECT_EQ(refused(numbered_stream({103}, 20), options).substr(0, 33),
            "[data] the training data changed:");
  EXPECT_EQ(refused(numbered_stream({103}), {.seq = 5, .seed = 11}),
            "[data] 'seq' must stay as in the checkpoint: expected 4, got 5");
  EXPECT_EQ(refused(numbered_stream({103}), {.seq = 4, .seed = 12}),
            "[data] 'seed' must stay as in the checkpoint: expected 11, got 12");
  EXPECT_EQ(refused(numbered_stream({103}), {.seq = 4, .order = WindowOrder::random, .seed = 11}),
            "[data] 'order' must stay as in the checkpoint: expected shuffled, got random");
  EXPECT_EQ(refused(numbered_stream({103}),
                    {.seq = 4, .boundaries = DocumentBoundaries::mask_labels, .seed = 11}),
            "[data] 'boundaries' must stay as in the checkpoint: expected ignore, got mask_labels");
  EXPECT_EQ(refused(numbered_stream({103}), options, "position", "26"),
            "[data] loader state: 'position' must be from 0 to 25, got '26'");
  EXPECT_EQ(refused(numbered_stream({103}), options, "position", "-1"),
            "[data] loader state: 'position' must be from 0 to 25, got '-1'");
  EXPECT_EQ(refused(numbered_stream({103}), options, "epoch", "erase"),
            "[data] loader state: expected 'epoch', got none");
  EXPECT_EQ(error_of([] { RowLoader(numbered_stream({1}), {.seq = 4}); }),
            "[data] expected a stream of at least 2 tokens, got 1");
}

TEST(EvalWindows, are_the_first_predictions_in_order) {
  const SampleEval windows(numbered_stream({100}), {.seq = 4}, 11);
  EXPECT_EQ(windows.n_rows(), 3);
  const Batch batch = windows.at(1, 3);
  // The row after the last one is the batch's first again, without labels.
  EXPECT_EQ(batch.ints("tokens"),
            (std::vector<int32_t>{14, 15, 16, 17, 18, 19, 0, 0, 14, 15, 16, 17}));
  EXPECT_EQ(batch.ints("labels"),
            (std::vector<int32_t>{15, 16, 17, 18, 19, 20, -1, -1, -1, -1, -1, -1}));
  const SampleEval small(numbered_stream({5}), {.seq = 4}, 10);
  EXPECT_EQ(small.n_rows(), 1);
  EXPECT_EQ(small.at(0, 1).n_labels(), 4);
  EXPECT_EQ(SampleEval(TokenStream(), {.seq = 4}, 10).n_rows(), 0);
}

}  // namespace
}  // namespace octet::data_loader_test
