#include "data/sample_loader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace octet {
namespace {

constexpr uint64_t kRandomSamples = name_hash("data.random_samples");

// Where no sample is yet, arrays hold what stands for none.
Batch batch_for(const RowSource& source, int64_t n_rows, int64_t seq) {
  Batch batch{.batch = n_rows, .seq = seq, .rows_per_sample = source.rows_per_sample()};
  for (const InputSpec& input : source.inputs()) batch.add(input);
  if (source.tells_lengths()) batch.lengths.assign(static_cast<size_t>(n_rows), seq);
  return batch;
}

}  // namespace

SampleLoader::SampleLoader(std::shared_ptr<const RowSource> source,
                           const SampleLoaderOptions& options)
    : source_(std::move(source)), options_(options) {
  n_rows_ = source_->n_samples() * source_->rows_per_sample();
  CHECK(n_rows_ >= 1);
  identity_ = source_->identity();  // now: a state can be saved when the data cannot be read
  if (options_.threads > 1) pool_ = std::make_unique<ThreadPool>(options_.threads);
}

std::unique_ptr<RowLoader> SampleLoader::copy() const {
  auto result = std::make_unique<SampleLoader>(source_, options_);
  result->rows_consumed_ = rows_consumed_;
  return result;
}

int64_t SampleLoader::sample_of(int64_t row) const {
  const int64_t n = source_->n_samples(), draw = row / source_->rows_per_sample();
  if (options_.order == WindowOrder::sequential) return draw % n;
  if (options_.order == WindowOrder::shuffled)
    return Permutation(n, options_.seed, static_cast<uint64_t>(draw / n))(draw % n);
  return uniform_index(n, options_.seed, kRandomSamples, static_cast<uint64_t>(draw));
}

Batch SampleLoader::peek(int64_t skip, int64_t batch) const {
  const int64_t n_rows = source_->rows_per_sample();
  CHECK(skip >= 0 && batch >= 1 && skip % n_rows == 0 && batch % n_rows == 0);
  Batch result = batch_for(*source_, batch, options_.seq);
  const auto write = [&](int64_t i, int) {
    const int64_t row = i * n_rows, drawn = rows_consumed_ + skip + row;
    source_->write(sample_of(drawn), {row, RowUse::training, options_.seed, drawn}, result);
  };
  const int64_t n = batch / n_rows;
  if (pool_ != nullptr) {
    pool_->run(n, write);
  } else {
    for (int64_t i = 0; i < n; ++i) write(i, 0);
  }
  return result;
}

RowCounts SampleLoader::count(int64_t n_rows) const {
  const int64_t n_padded_tokens = n_rows * options_.seq, n_sample_rows = source_->rows_per_sample();
  RowCounts counts{.items = {{"rows", n_rows}, {"samples", n_rows / n_sample_rows}},
                   .n_tokens = n_rows,
                   .n_padded_tokens = n_padded_tokens};
  for (const InputSpec& input : source_->inputs()) {
    if (input.per == Per::token) counts.n_tokens = n_padded_tokens;
    if (input.fill != Fill::ignored) continue;
    int64_t& n = counts.items[input.name];
    for (int64_t row = 0; row < n_rows; row += n_sample_rows) {
      const RowCell where{row, RowUse::training, options_.seed, rows_consumed_ + row};
      n += source_->n_counted(sample_of(where.drawn), where, input);
    }
  }
  return counts;
}

LoaderState SampleLoader::state() const {
  return {{"identity", fmt::format("{:016x}", identity_)},
          {"samples", std::to_string(source_->n_samples())},
          {"seq", std::to_string(options_.seq)},
          {"order", std::string(enum_name(options_.order))},
          {"seed", std::to_string(options_.seed)},
          {"epoch", std::to_string(epoch())},
          {"position", std::to_string(rows_consumed_ % n_rows_)}};
}

void SampleLoader::restore(const LoaderState& state) {
  expect_same_source(state, this->state(), {"samples", "seq", "order", "seed"});
  const int64_t epoch = state_number(state, "epoch", INT64_MAX / n_rows_);
  rows_consumed_ = epoch * n_rows_ + state_number(state, "position", n_rows_);
}

SampleEval::SampleEval(std::shared_ptr<const RowSource> source, int64_t seq, int64_t max_samples)
    : source_(std::move(source)), seq_(seq) {
  n_rows_ = std::min(source_->n_samples(), max_samples) * source_->rows_per_sample();
}

Batch SampleEval::at(int64_t first_row, int64_t batch) const {
  const int64_t n_rows = source_->rows_per_sample();
  CHECK(first_row >= 0 && first_row % n_rows == 0 && batch >= 1 && batch % n_rows == 0);
  Batch result = batch_for(*source_, batch, seq_);
  for (int64_t row = 0; row < batch && n_rows_ > 0; row += n_rows) {
    const int64_t filled = filled_row(first_row + row, first_row, n_rows_);
    source_->write(filled / n_rows, {.row = row, .drawn = filled}, result);
    if (filled == first_row + row) continue;
    for (int64_t i = 0; i < n_rows; ++i) mask_row(result, row + i);
  }
  return result;
}

}  // namespace octet
