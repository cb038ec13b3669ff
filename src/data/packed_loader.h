// Rows of whole documents (data/packing.h), for training and for evaluation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "data/packing.h"
#include "data/rows.h"
#include "data/token_stream.h"

namespace octet {

// The rows of epochs, each made once for all that ask while one of them holds it. For any threads.
class PackedEpochs {
 public:
  PackedEpochs(Pieces pieces, const PackOptions& options)
      : pieces_(std::move(pieces)), options_(options) {}
  const Pieces& pieces() const { return pieces_; }
  std::shared_ptr<const PackedRows> rows(int64_t epoch);

 private:
  const Pieces pieces_;
  const PackOptions options_;
  std::mutex mutex_;
  std::map<int64_t, std::weak_ptr<const PackedRows>> made_;
};

// Epoch after epoch, each with its documents in another order. The position is an epoch and a row
// of it, and the rows of an epoch depend on nothing else, so a resumed run draws the same batches.
// With buckets (data/packing.h) rows are as long as the longest of their step needs, peek() asks
// for rows of one step and advance() goes on by whole steps. The rows of an epoch are made when
// they are first asked for, and copies share them.
class PackedLoader : public RowLoader {
 public:
  // Throws Error{bad_data} where no document fits.
  PackedLoader(TokenStream stream, const PackOptions& options);

  Batch peek(int64_t skip, int64_t batch) const override;
  RowCounts count(int64_t n_rows) const override;
  void advance(int64_t n_rows) override;
  int64_t epoch() const override { return epoch_; }
  int64_t rows_of_epoch(int64_t epoch) const override { return rows_of(epoch).n_rows(); }
  int64_t rows_consumed() const override { return rows_consumed_; }
  LoaderState state() const override;
  std::string description() const override;
  std::vector<int64_t> lengths() const override;
  std::unique_ptr<RowLoader> copy() const override { return std::make_unique<PackedLoader>(*this); }
  void restore(const LoaderState& state) override;

  const PackReport& report() const { return report_; }

 private:
  struct Place {
    int64_t epoch = 0, row = 0;
  };
  Place after(int64_t n_rows) const;
  std::span<const int64_t> row_after(int64_t n_rows) const;
  int64_t length_after(int64_t n_rows) const;
  Batch rows_after(int64_t n_rows, int64_t batch, int64_t length) const;
  const PackedRows& rows_of(int64_t epoch) const;
  const Pieces& pieces() const { return epochs_->pieces(); }

  TokenStream stream_;
  PackOptions options_;
  uint64_t identity_ = 0;
  std::shared_ptr<PackedEpochs> epochs_;  // of all copies
  PackReport report_;
  mutable std::map<int64_t, std::shared_ptr<const PackedRows>> rows_;  // of the epochs in use
  int64_t epoch_ = 0, position_ = 0, rows_consumed_ = 0;
};

// The lengths, ascending, that rows of one document each may have besides PackOptions::seq. The
// `turn_rows` rows that are evaluated at a time have one: that of the longest of them.
struct EvalLengths {
  std::vector<int64_t> shorter = {};
  int64_t turn_rows = 1;
};

// The documents at the start of a stream, until they hold `max_tokens`, in order; with several
// lengths those of each length in order, the shortest first, and at() asks for rows of one turn.
class PackedEval : public EvalRows {
 public:
  PackedEval(TokenStream stream, PackOptions options, int64_t max_tokens,
             const EvalLengths& lengths = {});
  int64_t n_rows() const override { return rows_.n_rows(); }
  Batch at(int64_t first_row, int64_t batch) const override;

 private:
  int64_t length_of_turn(int64_t first_row) const;

  TokenStream stream_;
  PackOptions options_;
  int64_t turn_rows_;
  Pieces pieces_;
  PackedRows rows_;
};

}  // namespace octet
