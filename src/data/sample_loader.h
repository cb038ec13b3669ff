// Rows of a source of samples, for training and for evaluation.
//
// Draw i is, in epoch i / n of n samples, sample i % n, in shuffled order that of a permutation by
// (seed, epoch), in random order an independent uniform one. Everything is a function of (source,
// options, rows drawn), so that a resumed run draws the same rows, with the same choices of chance.
#pragma once

#include <cstdint>
#include <memory>

#include "base/thread_pool.h"
#include "data/loader.h"
#include "data/row_source.h"
#include "data/rows.h"

namespace octet {

struct SampleLoaderOptions {
  int64_t seq = 0;  // tokens a row
  WindowOrder order = WindowOrder::shuffled;
  uint64_t seed = 0;
  int threads = 1;  // that write the samples of a batch
};

class SampleLoader : public RowLoader {
 public:
  // The source has a sample at least. Numbers of rows are multiples of its rows a sample.
  SampleLoader(std::shared_ptr<const RowSource> source, const SampleLoaderOptions& options);

  Batch peek(int64_t skip, int64_t batch) const override;
  RowCounts count(int64_t n_rows) const override;
  void advance(int64_t n_rows) override { rows_consumed_ += n_rows; }
  int64_t epoch() const override { return rows_consumed_ / n_rows_; }
  int64_t rows_of_epoch(int64_t) const override { return n_rows_; }
  int64_t rows_consumed() const override { return rows_consumed_; }
  LoaderState state() const override;
  // At the same position, for another thread.
  std::unique_ptr<RowLoader> copy() const override;
  void restore(const LoaderState& state) override;

 private:
  int64_t sample_of(int64_t row) const;

  std::shared_ptr<const RowSource> source_;
  SampleLoaderOptions options_;
  std::unique_ptr<ThreadPool> pool_;  // each copy has its own
  int64_t n_rows_ = 0;                // of an epoch
  uint64_t identity_ = 0;             // of the source
  int64_t rows_consumed_ = 0;
};

// The first samples of a source, at most `max_samples`, in order: the same for every run.
class SampleEval : public EvalRows {
 public:
  SampleEval(std::shared_ptr<const RowSource> source, int64_t seq, int64_t max_samples);
  int64_t n_rows() const override { return n_rows_; }
  Batch at(int64_t first_row, int64_t batch) const override;

 private:
  std::shared_ptr<const RowSource> source_;
  int64_t seq_, n_rows_;
};

}  // namespace octet
