// Which samples of a source the rows of each epoch hold, for training and for evaluation.
//
// An epoch has every sample once (data/mixture.h: or as often as its weight says), in the order of
// the source or in a permutation by (seed, epoch); in random order each draw is an independent
// uniform one. A sample is a row, some rows, or with Packing::first_fit a part of one. Everything
// is a function of (source, options, position): no hidden state, so that a resumed run draws the
// same rows with the same choices of chance, and so does any cutting into batches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "data/mixture.h"
#include "data/packing.h"
#include "data/row_options.h"
#include "data/row_source.h"
#include "data/rows.h"

namespace octet {

struct RowPlace {
  int64_t epoch = 0, row = 0;
  int64_t drawn = 0;  // rows before it, since the start
};

struct PackReport {
  int64_t n_rows = 0;           // of the first epoch, without those that only fill up
  int64_t n_used = 0;           // of them that hold a token
  int64_t n_padded_tokens = 0;  // with padding
  double padding_share() const {
    return n_padded_tokens > 0
               ? 1 - static_cast<double>(n_used) / static_cast<double>(n_padded_tokens)
               : 0;
  }
};

// For any threads.
class RowPlan {
 public:
  RowPlan(std::shared_ptr<const RowSource> source, const RowOptions& options);

  const RowSource& source() const { return *source_; }
  bool counts_tokens() const;  // RowCounts::has_tokens
  const RowOptions& options() const { return options_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }  // of rows, ascending
  // Sizes of rows of two texts in buckets: of batches, whose rows are more where they are shorter.
  const std::vector<RowSize>& sizes() const { return sizes_; }
  int64_t rows_of_epoch(int64_t epoch) const;
  // Steps of an epoch of several sizes, each of which is in one.
  int64_t steps_of_epoch(int64_t epoch) const { return std::ssize(packed(epoch)->steps); }
  int64_t step_rows(const RowPlace& step) const;
  bool begins_step(const RowPlace& place) const;
  RowPlace after(RowPlace place, int64_t n_rows) const;
  std::vector<int64_t> samples(const RowPlace& place) const;
  // The size of the rows of a step, which begins there.
  RowSize size(const RowPlace& step) const;
  // These rows, of this size; those that only fill up are masked. Throws as RowSource::write does.
  Batch read(const std::vector<RowPlace>& rows, const RowSize& size, RowUse use) const;
  RowCounts count(RowPlace first, int64_t n_rows) const;
  PackReport report() const;
  // Lengths, or of several sizes the steps of the first epoch and the size of their batches.
  std::string sizes_text() const;

 private:
  std::shared_ptr<const PackedRows> packed(int64_t epoch) const;
  PackedRows pack(int64_t epoch) const;
  bool is_packed() const { return options_.packing == Packing::first_fit || options_.buckets > 1; }
  int64_t row_length(int64_t sample) const;  // of one that it has for itself
  int64_t length(RowPlace step) const;       // of the rows of a step
  int64_t size_of(int64_t sample) const;     // its number
  SizedStep sized_step(const RowPlace& place) const;
  bool fills_up(const RowPlace& place) const;
  PackReport sized_report() const;
  RowCell cell(const RowPlace& place, int64_t row, RowUse use) const;

  std::shared_ptr<const RowSource> source_;
  RowOptions options_;
  std::vector<RowSize> sizes_;
  std::vector<int64_t> lengths_;
  Mixture mixture_;
  mutable std::mutex packed_mutex_, pool_mutex_;
  mutable std::map<int64_t, std::shared_ptr<const PackedRows>> packed_;  // of epochs in use
  mutable ThreadPool pool_;
};

// Training rows without end: a position in a plan, which copies share.
//
// Where rows come in several lengths, peek() asks for rows of one step and advance() goes on by
// whole steps; in several sizes peek() asks for rows of the next step. Numbers of rows are
// multiples of the source's rows a sample.
class RowLoader {
 public:
  // The source has a sample at least.
  RowLoader(std::shared_ptr<const RowSource> source, const RowOptions& options);
  // Rows of text (data/text_samples.h). Throws Error{bad_data} where the text has no sample.
  RowLoader(const TokenStream& text, const RowOptions& options);

  // The rows that come once `skip` more are consumed; changes nothing.
  Batch peek(int64_t skip, int64_t batch) const;
  RowCounts count(int64_t n_rows) const { return plan_->count(at_, n_rows); }  // of the next rows
  void advance(int64_t n_rows);
  int64_t epoch() const { return at_.epoch; }
  int64_t rows_of_epoch(int64_t epoch) const { return plan_->rows_of_epoch(epoch); }
  int64_t step_rows() const { return plan_->step_rows(at_); }  // of the next step
  // Rows of a batch of the next step: `full`, but of several sizes as many as that one's.
  int64_t batch_rows(int64_t full) const {
    return plan_->sizes().empty() ? full : plan_->size(at_).rows;
  }
  int64_t rows_consumed() const { return at_.drawn; }  // since the start
  const RowPlan& plan() const { return *plan_; }
  std::string description() const;  // what there is to say of the rows
  // The lengths that rows come in; empty where all are as long as the run says, or of sizes.
  std::vector<int64_t> lengths() const {
    return plan_->options().buckets == 1 || !plan_->sizes().empty() ? std::vector<int64_t>{}
                                                                    : plan_->lengths();
  }

  LoaderState state() const;
  // Continues from a state. Throws Error{bad_data} when the data or an option differs from what the
  // state was taken with, naming it.
  void restore(const LoaderState& state);

 private:
  std::shared_ptr<const RowPlan> plan_;
  uint64_t identity_ = 0;  // of the source
  RowPlace at_;
};

// All samples of a source in order, or the start of a text.
class SampleEval : public EvalRows {
 public:
  SampleEval(std::shared_ptr<const RowSource> source, const RowOptions& options);
  SampleEval(const TokenStream& text, const RowOptions& options, int64_t max_tokens);
  int64_t n_rows() const override { return plan_.rows_of_epoch(0); }
  int64_t rows_per_sample() const override { return plan_.source().rows_per_sample(); }
  Batch at(int64_t first_row, int64_t batch) const override;

 private:
  RowPlan plan_;
};

}  // namespace octet
