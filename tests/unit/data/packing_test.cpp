#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "unit/base/error_of.h"
#include "unit/data/documents.h"

namespace octet::data_packing_test {
namespace {

using test::Documents;
using test::error_of;
using test::many_lengths;
using test::stream_of;

RowOptions packed(int64_t seq) {
  return {.seq = seq, .boundaries = DocumentBoundaries::isolate, .packing = Packing::first_fit};
}

RowOptions in_order(RowOptions options) {
  options.order = WindowOrder::sequential;
  return options;
}

RowOptions single(RowOptions options) {
  options.packing = Packing::single;
  return options;
}

RowOptions seeded(RowOptions options, uint64_t seed) {
  options.seed = seed;
  return options;
}

TEST(Packing, first_fit_fills_the_first_row_with_room) {
  // Places 5, 4, 3, 2, 6 in rows of 8: {5, 3}, {4, 2}, {6}.
  const RowOptions options = in_order(packed(8));
  const RowPlan plan(training_text(stream_of({6, 5, 4, 3, 7}), options), options);
  EXPECT_EQ(plan.rows_of_epoch(0), 3);
  EXPECT_EQ(plan.samples({.row = 0}), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(plan.samples({.row = 1}), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(plan.samples({.row = 2}), (std::vector<int64_t>{4}));
  EXPECT_EQ(plan.report().n_used, 20);
  EXPECT_DOUBLE_EQ(plan.report().padding_share(), 4.0 / 24);
}

TEST(Packing, a_row_holds_whole_documents_and_where_they_begin) {
  const RowLoader loader(stream_of({6, 5, 4}), in_order(packed(8)));
  const Batch batch = loader.peek(0, 2);
  EXPECT_EQ(batch.ints("tokens"), (std::vector<int32_t>{1, 2, 3, 4, 5, 12, 13, 14,  //
                                                        7, 8, 9, 10, 0, 0, 0, 0}));
  EXPECT_EQ(batch.ints("labels"), (std::vector<int32_t>{-1, -1, 4, 5, 6, -1, 14, 15,  //
                                                        -1, -1, 10, 11, -1, -1, -1, -1}));
  EXPECT_EQ(batch.ints("doc_starts"),
            (std::vector<int32_t>{0, 0, 0, 0, 0, 5, 5, 5, 0, 0, 0, 0, 4, 4, 4, 4}));
  const RowCounts counts = loader.count(2);
  EXPECT_EQ(counts.n_labels(), 7);
  EXPECT_EQ(counts.n_tokens, 12);
}

TEST(Packing, an_epoch_trains_every_label_once) {
  const std::vector<int64_t> lengths = many_lengths();
  const auto documents = std::make_shared<Documents>(lengths);
  for (const Packing packing : {Packing::single, Packing::first_fit}) {
    RowOptions options = seeded(packed(100), 3);
    options.packing = packing;
    RowLoader loader(TokenStream({documents}), options);
    std::vector<int32_t> seen;
    while (loader.epoch() == 0) {
      const Batch batch = loader.peek(0, 1);
      for (const int32_t label : batch.ints("labels")) {
        if (label != kIgnoredLabel) seen.push_back(label);
      }
      loader.advance(1);
    }
    std::ranges::sort(seen);
    std::vector<int32_t> expected;
    for (int32_t token = 1; token <= documents->n_tokens(); ++token) {
      if (documents->is_label(token)) expected.push_back(token);
    }
    EXPECT_EQ(seen, expected);
  }
}

TEST(Packing, wastes_little) {
  const TokenStream stream = stream_of(many_lengths());
  EXPECT_LT(RowLoader(stream, packed(256)).plan().report().padding_share(), 0.02);
  EXPECT_GT(RowLoader(stream, single(packed(256))).plan().report().padding_share(), 0.7);
}

TEST(Packing, what_does_not_fit_is_dropped_cut_or_split) {
  const std::vector<int64_t> lengths = {5, 25, 9, 4};
  const auto pieces = [&](TooLong too_long) {
    return find_pieces(stream_of(lengths), {.seq = 8, .too_long = too_long});
  };
  const auto spans = [](const Pieces& found) {
    std::vector<std::pair<int64_t, int64_t>> result;
    for (const Piece& piece : found.all) result.emplace_back(piece.first, piece.n);
    return result;
  };
  using Spans = std::vector<std::pair<int64_t, int64_t>>;
  const Pieces dropped = pieces(TooLong::drop);
  EXPECT_EQ(spans(dropped), (Spans{{0, 5}, {30, 9}, {39, 4}}));
  EXPECT_EQ(dropped.n_too_long, 1);
  EXPECT_EQ(dropped.n_lost_tokens, 25);
  EXPECT_EQ(dropped.longest, 25);
  // The first part holds nothing to train: its document trains from token 13 on.
  const Pieces cut = pieces(TooLong::truncate);
  EXPECT_EQ(spans(cut), (Spans{{0, 5}, {30, 9}, {39, 4}}));
  EXPECT_EQ(cut.n_without_labels, 1);
  EXPECT_EQ(cut.n_lost_tokens, 16);
  const Pieces split = pieces(TooLong::split);
  EXPECT_EQ(spans(split), (Spans{{0, 5}, {13, 9}, {21, 9}, {30, 9}, {39, 4}}));
  EXPECT_EQ(split.n_lost_tokens, 0);
  EXPECT_EQ(split.n_without_labels, 1);
}

// Parts of documents are no documents.
TEST(Packing, documents_of_an_evaluation_are_counted_whole) {
  const auto of = [](const std::vector<int64_t>& lengths, TooLong too_long, int64_t max_tokens) {
    const EvaluatedDocuments found =
        evaluated_documents(stream_of(lengths), {.seq = 8, .too_long = too_long}, max_tokens);
    return std::tuple(found.n, found.n_all, found.is_all);
  };
  const std::vector<int64_t> lengths = {5, 25, 9, 4};
  EXPECT_EQ(of(lengths, TooLong::drop, 1000), std::tuple(3, 4, false));
  // A part of the second holds nothing to train.
  EXPECT_EQ(of(lengths, TooLong::split, 1000), std::tuple(4, 4, false));
  EXPECT_EQ(of(lengths, TooLong::split, 12), std::tuple(2, 4, false));
  EXPECT_EQ(of({5, 9, 4}, TooLong::split, 1000), std::tuple(3, 3, true));
}

TEST(Packing, a_state_restores_any_position) {
  const TokenStream stream = stream_of(many_lengths());
  RowLoader loader(stream, seeded(packed(100), 5));
  const RowLoader first = loader;
  for (int step = 0; step < 40; ++step) {
    loader.advance(331);  // over several epochs
    RowLoader other = first;
    other.restore(loader.state());
    EXPECT_EQ(other.peek(0, 7).ints("tokens"), loader.peek(0, 7).ints("tokens"));
    EXPECT_EQ(other.state(), loader.state());
    EXPECT_EQ(other.rows_consumed(), loader.rows_consumed());
  }
  EXPECT_GT(loader.epoch(), 1);
}

TEST(Packing, any_cutting_into_batches_gives_the_same_rows) {
  const TokenStream stream = stream_of({6, 5, 4, 3, 7, 8});
  const RowLoader loader(stream, seeded(packed(8), 1));
  const Batch all = loader.peek(0, 12);  // over epochs
  for (int64_t i = 0; i < 12; ++i) {
    const Batch one = loader.peek(i, 1);
    EXPECT_TRUE(std::equal(one.ints("tokens").begin(), one.ints("tokens").end(),
                           all.ints("tokens").begin() + i * 8));
  }
}

TEST(Packing, epochs_differ_and_seeds_do) {
  const TokenStream stream = stream_of(many_lengths());
  RowLoader loader(stream, seeded(packed(100), 5));
  const RowLoader other(stream, seeded(packed(100), 6));
  EXPECT_NE(loader.peek(0, 4).ints("tokens"), other.peek(0, 4).ints("tokens"));
  const Batch first = loader.peek(0, 4);
  while (loader.epoch() == 0) loader.advance(1);
  EXPECT_NE(loader.peek(0, 4).ints("tokens"), first.ints("tokens"));
}

TEST(Packing, refuses_a_state_of_other_options) {
  const TokenStream stream = stream_of({6, 5, 4});
  RowLoader loader(stream, packed(8));
  const RowLoader other(stream, single(packed(8)));
  EXPECT_EQ(error_of([&] { loader.restore(other.state()); }),
            "[data] 'rows' must stay as in the checkpoint: expected single, got first_fit");
  RowLoader windows(stream, {.seq = 8});
  EXPECT_EQ(error_of([&] { windows.restore(loader.state()); }),
            "[data] 'rows' must stay as in the checkpoint: expected first_fit, got none");
  LoaderState state = loader.state();
  state["position"] = "77";
  EXPECT_EQ(error_of([&] { loader.restore(state); }),
            "[data] loader state: 'position' must be from 0 to 1, got '77'");
  state = loader.state();
  state["epoch"] = "5";  // with no row drawn
  EXPECT_EQ(error_of([&] { loader.restore(state); }),
            "[data] loader state: 'epoch' must be from 0 to 0, got '5'");
  EXPECT_EQ(error_of([&] { RowLoader(stream, packed(2)); }),
            "[data] expected documents of at most 3 tokens with a token to train on, got 3 "
            "documents, 3 of them longer (data.too_long)");
}

TEST(PackedEval, reads_the_documents_at_the_start_in_order) {
  const TokenStream stream = stream_of({6, 5, 4, 3, 7});
  const SampleEval eval(stream, single(packed(8)), 11);
  EXPECT_EQ(eval.n_rows(), 2);
  const Batch batch = eval.at(0, 3);
  EXPECT_EQ(batch.ints("tokens")[0], 1);
  EXPECT_EQ(batch.ints("tokens")[8], 7);
  EXPECT_EQ(
      std::count(batch.ints("labels").begin() + 16, batch.ints("labels").end(), kIgnoredLabel), 8);
  EXPECT_TRUE(std::equal(batch.ints("tokens").begin(), batch.ints("tokens").begin() + 8,
                         batch.ints("tokens").begin() + 16));
}

// Documents of n tokens in n - 1 places; the 11 of one is too long for all lengths but seq.
TEST(PackedEval, takes_the_shortest_length_that_the_rows_of_a_turn_fit) {
  const TokenStream stream = stream_of({6, 12, 4, 9, 3});
  const RowOptions options = single(packed(16));
  RowOptions short_rows = options;
  short_rows.lengths = {3, 8, 16};
  short_rows.step_rows = 2;
  const SampleEval eval(stream, short_rows, 100), padded(stream, options, 100);
  ASSERT_EQ(eval.n_rows(), 5);
  std::vector<int64_t> lengths;
  std::multiset<int32_t> labels, all_labels;
  for (int64_t row = 0; row < 6; ++row) {
    const Batch batch = eval.at(row, 1);
    lengths.push_back(batch.seq);
    for (const int32_t label : batch.ints("labels")) labels.insert(label);
    labels.erase(kIgnoredLabel);
  }
  for (const int32_t label : padded.at(0, 5).ints("labels")) all_labels.insert(label);
  all_labels.erase(kIgnoredLabel);
  EXPECT_EQ(lengths, (std::vector<int64_t>{3, 3, 8, 8, 16, 16}));
  EXPECT_EQ(labels, all_labels);
  EXPECT_EQ(eval.at(2, 2).ints("tokens")[0], 1);  // of those of one length the first one first
  EXPECT_EQ(SampleEval(stream_of({}), short_rows, 9).n_rows(), 0);
}

}  // namespace
}  // namespace octet::data_packing_test
