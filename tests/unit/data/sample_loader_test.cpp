#include "data/row_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "unit/base/error_of.h"

namespace octet::data_sample_loader_test {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// Sample i: "value" 10 i + row of the sample, and where and how it was asked for; "labels" i, each
// third of them ignored.
class Numbered : public RowSource {
 public:
  explicit Numbered(int64_t n, int64_t rows_per_sample = 1) : n_(n), rows_(rows_per_sample) {}
  int64_t n_samples() const override { return n_; }
  int64_t rows_per_sample() const override { return rows_; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  uint64_t identity() const override { return static_cast<uint64_t>(7 * n_ + rows_); }
  std::optional<int64_t> n_counted(int64_t sample, const RowCell&,
                                   const InputSpec&) const override {
    return sample % 3 == 0 ? 0 : 1;
  }
  int64_t sample_bytes() const override { return 4 * rows_; }
  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    for (int64_t i = 0; i < rows_; ++i) {
      const auto at = static_cast<size_t>(2 * (where.row + i));
      to.reals("value")[at] = static_cast<float>(10 * sample + i);
      to.reals("value")[at + 1] =
          static_cast<float>(where.use == RowUse::training ? where.drawn : -where.drawn);
    }
    to.ints("labels")[static_cast<size_t>(where.row / rows_)] =
        static_cast<int32_t>(sample % 3 == 0 ? kIgnoredLabel : sample);
  }

 private:
  int64_t n_, rows_;
  std::vector<InputSpec> inputs_ = {
      {.name = "value", .per = Per::row, .inner = {2}, .type = HostType::real},
      {.name = "labels", .per = Per::sample, .fill = Fill::ignored}};
};

std::shared_ptr<const RowSource> numbered(int64_t n, int64_t rows_per_sample = 1) {
  return std::make_shared<Numbered>(n, rows_per_sample);
}

std::vector<float> values_of(const Batch& batch) {
  std::vector<float> values;
  for (int64_t row = 0; row < batch.batch; ++row)
    values.push_back(batch.reals("value")[static_cast<size_t>(2 * row)]);
  return values;
}

std::vector<float> drawn(RowLoader& loader, int64_t n) {
  const std::vector<float> values = values_of(std::as_const(loader).peek(0, n));
  loader.advance(n);
  return values;
}

TEST(SampleLoader, each_epoch_has_every_sample_once_in_an_order_of_its_own) {
  RowLoader loader(numbered(5), {.seq = 1, .seed = 3});
  const std::vector<float> first = drawn(loader, 5), second = drawn(loader, 5);
  EXPECT_THAT(first, UnorderedElementsAre(0, 10, 20, 30, 40));
  EXPECT_THAT(second, UnorderedElementsAre(0, 10, 20, 30, 40));
  EXPECT_NE(first, second);
  EXPECT_EQ(loader.epoch(), 2);
  RowLoader again(numbered(5), {.seq = 1, .seed = 3});
  EXPECT_EQ(drawn(again, 5), first);
  RowLoader other(numbered(5), {.seq = 1, .seed = 4});
  EXPECT_NE(drawn(other, 5), first);
}

TEST(SampleLoader, sequential_order_is_that_of_the_source) {
  RowLoader loader(numbered(3), {.seq = 1, .order = WindowOrder::sequential});
  EXPECT_THAT(drawn(loader, 5), ElementsAre(0, 10, 20, 0, 10));
}

TEST(SampleLoader, random_order_draws_each_sample_about_as_often) {
  RowLoader loader(numbered(4), {.seq = 1, .order = WindowOrder::random, .seed = 1});
  std::vector<int> counts(4);
  for (const float value : drawn(loader, 4000)) ++counts[static_cast<size_t>(value / 10)];
  EXPECT_THAT(counts, testing::Each(testing::AllOf(testing::Gt(880), testing::Lt(1120))));
}

TEST(SampleLoader, how_rows_are_cut_into_batches_changes_nothing) {
  const RowLoader loader(numbered(7), {.seq = 1, .seed = 9});
  const Batch all = loader.peek(0, 12);
  for (int64_t row = 0; row < 12; row += 4) {
    const Batch part = loader.peek(row, 4);
    EXPECT_TRUE(std::equal(part.reals("value").begin(), part.reals("value").end(),
                           all.reals("value").begin() + 2 * row));
  }
  EXPECT_EQ(all.reals("value")[2 * 11 + 1], 11);  // where chance looks
}

TEST(SampleLoader, threads_and_copies_change_nothing) {
  RowLoader one(numbered(7), {.seq = 1, .seed = 9});
  RowLoader four(numbered(7), {.seq = 1, .seed = 9, .threads = 4});
  one.advance(3);
  four.advance(3);
  const Batch expected = std::as_const(one).peek(2, 40);
  const RowLoader copy = four;
  four.advance(5);
  EXPECT_EQ(copy.rows_consumed(), 3);
  const Batch got = copy.peek(2, 40);
  EXPECT_EQ(got.reals("value"), expected.reals("value"));
  EXPECT_EQ(got.ints("labels"), expected.ints("labels"));
  EXPECT_EQ(copy.state(), one.state());
}

TEST(SampleLoader, a_restored_loader_goes_on_where_the_state_was_taken) {
  RowLoader loader(numbered(5), {.seq = 1, .seed = 3});
  drawn(loader, 8);
  const LoaderState state = loader.state();
  const Batch expected = std::as_const(loader).peek(0, 6);
  RowLoader resumed(numbered(5), {.seq = 1, .seed = 3});
  resumed.restore(state);
  EXPECT_EQ(resumed.rows_consumed(), 8);
  EXPECT_EQ(std::as_const(resumed).peek(0, 6).reals("value"), expected.reals("value"));
}

TEST(SampleLoader, a_state_of_other_data_or_options_is_refused) {
  RowLoader loader(numbered(5), {.seq = 1, .seed = 3});
  const LoaderState state = loader.state();
  EXPECT_EQ(test::error_of([&] { RowLoader(numbered(6), {.seq = 1, .seed = 3}).restore(state); }),
            "[data] the training data changed: expected 5 samples of content 0000000000000024, "
            "got 6 of 000000000000002b");
  EXPECT_EQ(test::error_of([&] { RowLoader(numbered(5), {.seq = 1, .seed = 4}).restore(state); }),
            "[data] 'seed' must stay as in the checkpoint: expected 3, got 4");
  LoaderState beyond = state;
  beyond["position"] = "5";
  EXPECT_NE(test::error_of([&] { loader.restore(beyond); }), "no error");
}

TEST(SampleLoader, labels_are_counted_as_they_will_be_read) {
  RowLoader loader(numbered(7), {.seq = 4, .seed = 2});
  for (int64_t n = 1; n < 12; ++n) {
    const RowCounts counts = loader.count(n);
    const Batch batch = std::as_const(loader).peek(0, n);
    EXPECT_EQ(counts.n_labels(), batch.n_labels());
    EXPECT_EQ(counts.items.at("rows"), n);
    EXPECT_FALSE(counts.has_tokens);
    EXPECT_EQ(counts.n_tokens, n);  // a row is one, whatever seq is
    EXPECT_EQ(counts.n_padded_tokens, n);
    loader.advance(1);
  }
}

TEST(SampleLoader, rows_of_a_sample_stay_together) {
  RowLoader loader(numbered(3, 2), {.seq = 1, .order = WindowOrder::sequential});
  const Batch batch = std::as_const(loader).peek(2, 4);
  EXPECT_THAT(values_of(batch), ElementsAre(10, 11, 20, 21));
  EXPECT_THAT(batch.ints("labels"), ElementsAre(1, 2));
  EXPECT_EQ(loader.rows_of_epoch(0), 6);
  EXPECT_EQ(loader.count(4).items.at("samples"), 2);
}

TEST(SampleEval, rows_come_in_order_and_those_behind_the_last_count_nowhere) {
  const SampleEval rows(slice_rows(numbered(9), 0, 5), {.seq = 1});
  EXPECT_EQ(rows.n_rows(), 5);
  EXPECT_THAT(values_of(rows.at(0, 4)), ElementsAre(0, 10, 20, 30));
  const Batch last = rows.at(4, 4);
  EXPECT_THAT(values_of(last), ElementsAre(40, 40, 40, 40));
  EXPECT_THAT(last.ints("labels"), ElementsAre(4, -1, -1, -1));
  EXPECT_EQ(last.n_items("rows"), 1);
  EXPECT_EQ(last.reals("value")[1], -4);  // no training
  EXPECT_EQ(SampleEval(slice_rows(numbered(3, 2), 0, 2), {.seq = 1}).n_rows(), 4);
}

TEST(RowSource, a_slice_is_a_part_with_an_identity_of_its_own) {
  const auto whole = numbered(9);
  const auto part = slice_rows(whole, 6, 9);
  EXPECT_EQ(part->n_samples(), 3);
  EXPECT_EQ(part->n_counted(0, {}, part->inputs()[1]), 0);
  EXPECT_THAT(values_of(SampleEval(part, {.seq = 1}).at(0, 3)), ElementsAre(60, 70, 80));
  EXPECT_NE(part->identity(), whole->identity());
  EXPECT_NE(part->identity(), slice_rows(whole, 5, 9)->identity());
}

TEST(RowSource, at_least_one_sample_is_held_out_and_one_is_left) {
  EXPECT_EQ(first_held_out(100, 0.05), 95);
  EXPECT_EQ(first_held_out(10, 0.01), 9);
  EXPECT_EQ(first_held_out(10, 0), 10);
  EXPECT_EQ(first_held_out(2, 0.9), 1);
  EXPECT_EQ(first_held_out(1, 0.5), 1);
}

}  // namespace
}  // namespace octet::data_sample_loader_test
