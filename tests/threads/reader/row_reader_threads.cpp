// Reading ahead of the step: the rows are those that the loader gives, whatever the thread does.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "data/row_reader.h"

namespace octet {
namespace {

using std::chrono::milliseconds;

// Documents of 3 to 16 tokens that count up. `on_read` may wait or throw.
class CountingSource : public TokenSource {
 public:
  explicit CountingSource(int64_t n) : n_(n) {}
  int64_t n_tokens() const override { return n_; }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    const int64_t number = n_reads++;
    if (on_read) on_read(number);
    std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(first));
    for (size_t i = 0; i < flags.size(); ++i) {
      const int64_t at = (first + static_cast<int64_t>(i)) % 31;
      flags[i] = at == 0 || at == 3 || at == 15 ? kDocumentStart : 0;
    }
  }
  uint64_t identity() const override { return 7; }

  mutable std::atomic<int64_t> n_reads = 0;
  std::function<void(int64_t number)> on_read = {};

 private:
  int64_t n_;
};

RowLoader rows_of(const std::shared_ptr<CountingSource>& source, const RowOptions& options) {
  return {TokenStream({source}), options};
}

RowLoader windows(const std::shared_ptr<CountingSource>& source) {
  return rows_of(source, {.seq = 8, .seed = 3});
}

void expect_same(const Batch& got, const Batch& want) {
  EXPECT_EQ(got.seq, want.seq);
  EXPECT_EQ(got.lengths, want.lengths);
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    EXPECT_EQ(got.tensors[i].spec.name, want.tensors[i].spec.name);
    EXPECT_EQ(got.tensors[i].values, want.tensors[i].values);
  }
}

// Steps of a rank, beside the loader itself.
void expect_rows_of(RowLoader& loader, RowReaderOptions options) {
  RowReader reader(loader, options);
  for (int64_t step = 0; step < options.steps; ++step) {
    for (int64_t i = 0; i < options.accumulate; ++i) {
      const int64_t skip = (i * options.ranks + options.rank) * options.batch;
      const auto batch = reader.take(loader.rows_consumed() + skip);
      ASSERT_TRUE(batch.has_value()) << step << " " << i;
      expect_same(*batch, loader.peek(skip, options.batch));
    }
    loader.advance(options.batch * options.accumulate * options.ranks);
  }
  EXPECT_FALSE(reader.take(loader.rows_consumed()).has_value());
}

TEST(RowReader, gives_the_windows_of_the_loader_over_epochs) {
  const auto source = std::make_shared<CountingSource>(203);
  for (const int64_t rank : {0, 1}) {
    RowLoader loader = windows(source);
    loader.advance(5);
    expect_rows_of(loader, {.batch = 3, .accumulate = 2, .ranks = 2, .rank = rank, .steps = 20});
    EXPECT_GT(loader.epoch(), 5);
  }
}

TEST(RowReader, gives_the_rows_of_documents_over_epochs) {
  const auto source = std::make_shared<CountingSource>(620);
  const RowOptions packed{.seq = 24,
                          .boundaries = DocumentBoundaries::isolate,
                          .seed = 5,
                          .packing = Packing::first_fit};
  const RowOptions buckets{
      .seq = 16, .seed = 5, .packing = Packing::single, .buckets = 2, .step_rows = 4};
  for (const RowOptions& options : {packed, buckets}) {
    RowLoader loader = rows_of(source, options);
    expect_rows_of(loader, {.batch = 2, .accumulate = 2, .steps = 60});
    EXPECT_GT(loader.epoch(), 2);
  }
}

TEST(RowReader, prepares_what_it_has_read_in_its_thread) {
  const auto loader = windows(std::make_shared<CountingSource>(203));
  const auto prepare = [owner = std::this_thread::get_id()](Batch& read) {
    if (read.ints("tokens").front() >= 40) throw std::runtime_error("no room");
    EXPECT_NE(std::this_thread::get_id(), owner);
    read.ints("tokens").front() = -7;
  };
  RowReader reader(loader, {.batch = 1, .steps = 20, .prepare = prepare});
  int64_t row = 0;
  for (; loader.peek(row, 1).ints("tokens").front() < 40; ++row) {
    const auto batch = reader.take(row);
    ASSERT_TRUE(batch.has_value());
    EXPECT_EQ(batch->ints("tokens").front(), -7);
  }
  ASSERT_LT(row, 20);
  EXPECT_THROW(reader.take(row), std::runtime_error);
}

TEST(RowReader, waits_for_a_slow_source) {
  const auto source = std::make_shared<CountingSource>(203);
  source->on_read = [](int64_t) { std::this_thread::sleep_for(milliseconds(2)); };
  RowLoader loader = windows(source);
  expect_rows_of(loader, {.batch = 2, .steps = 6});
}

// Two wait, and one may be in the thread's hands.
TEST(RowReader, is_no_further_ahead_than_it_may) {
  const auto source = std::make_shared<CountingSource>(203);
  const auto loader = windows(source);
  RowReader reader(loader, {.batch = 1, .steps = 50, .ahead = 2});
  for (int64_t row = 0; row < 4; ++row) {
    ASSERT_TRUE(reader.take(row).has_value());
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_LE(source->n_reads, row + 4);
    EXPECT_GE(source->n_reads, row + 1);
  }
}

TEST(RowReader, of_another_row_leaves_it_to_the_caller) {
  const auto loader = windows(std::make_shared<CountingSource>(203));
  RowReader reader(loader, {.batch = 2, .steps = 3});
  ASSERT_TRUE(reader.take(0).has_value());
  EXPECT_FALSE(reader.take(0).has_value());  // again, as a step that is traced does
  EXPECT_FALSE(reader.take(4).has_value());
  EXPECT_TRUE(reader.take(2).has_value());
}

TEST(RowReader, throws_an_error_where_its_rows_are_taken) {
  const auto source = std::make_shared<CountingSource>(203);
  source->on_read = [](int64_t number) {
    if (number == 3) throw std::runtime_error("lost");
  };
  const auto loader = windows(source);
  RowReader reader(loader, {.batch = 1, .steps = 9});
  for (int64_t row = 0; row < 3; ++row) {
    std::this_thread::sleep_for(milliseconds(5));  // it is known by now
    EXPECT_TRUE(reader.take(row).has_value());
  }
  EXPECT_THROW(reader.take(3), std::runtime_error);
  EXPECT_FALSE(reader.take(3).has_value());
  EXPECT_FALSE(reader.take(4).has_value());
}

TEST(RowReader, ends_in_the_middle_and_keeps_an_error_to_itself) {
  const auto source = std::make_shared<CountingSource>(203);
  source->on_read = [](int64_t number) {
    std::this_thread::sleep_for(milliseconds(2));
    if (number == 1) throw std::runtime_error("lost");
  };
  for (const milliseconds wait : {milliseconds(0), milliseconds(1), milliseconds(8)}) {
    source->n_reads = 0;
    const RowReader reader(windows(source), {.batch = 1, .steps = 9});
    std::this_thread::sleep_for(wait);
  }
  EXPECT_LE(source->n_reads, 2);
}

}  // namespace
}  // namespace octet
