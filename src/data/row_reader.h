// Batches of a training run, read in a thread ahead of the step that takes them.
//
// Which rows come next is a function of the loader's position alone, so what is read ahead are the
// rows that the steps would have read. The position that a checkpoint records is that of the
// trainer's own loader, which goes on behind each step; the reader has a copy. An error belongs to
// its rows: who takes them gets it, and nobody where the run ends before.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "data/row_plan.h"

namespace octet {

// The micro-batches of one rank, from the loader's position on. The i-th of a step holds the rows
// from (i * ranks + rank) * batch on, of batch * accumulate * ranks; of rows of several sizes batch
// is RowLoader::batch_rows().
struct RowReaderOptions {
  int64_t batch = 1, accumulate = 1, ranks = 1, rank = 0;
  int64_t steps = 0;  // so many, and no row behind them
  int64_t ahead = 2;  // micro-batches that wait at most, besides one that is being read
  std::function<void(Batch& read)> prepare =
      {};  // in the thread; what it throws is the rows' error
};

class RowReader {
 public:
  RowReader(const RowLoader& loader, const RowReaderOptions& options);
  // Waits for the read in progress.
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // The micro-batch that begins with this row, RowLoader::rows_consumed() and what is skipped,
  // where it is the next of the reader's order; waits until it is read, and throws what reading it
  // threw. Nothing for any other row, and behind an error or the last step: the caller reads it.
  std::optional<Batch> take(int64_t first_row);

 private:
  struct Read {
    int64_t first_row = 0;
    Batch batch = {};
    std::exception_ptr error = nullptr;
  };

  void read_all();
  Read read(int64_t skip, int64_t batch) const;
  bool put(Read read);  // waits for room; false: the reader ends

  RowLoader loader_;  // of the thread
  RowReaderOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Read> reads_;
  bool is_over_ = false;  // nothing more is read
  bool ends_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace octet
