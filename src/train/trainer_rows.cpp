// The rows of the trainer's steps, read ahead of them.
#include <utility>

#include "train/trainer.h"

namespace octet {

// Read already, unless a step that is traced reads it again.
Batch Trainer::micro_batch(size_t index) {
  const int64_t place = static_cast<int64_t>(index) * n_ranks() + machine_.rank();
  const int64_t skip = place * config_.train.batch;
  if (reader_) {
    if (auto batch = reader_->take(loader_.rows_consumed() + skip)) return std::move(*batch);
  }
  return loader_.peek(skip, config_.train.batch);
}

void Trainer::read_ahead() {
  if (!machine_.reads_ahead.value_or(machine_.device.info().is_asynchronous)) return;
  reader_ = std::make_unique<RowReader>(
      loader_, RowReaderOptions{.batch = config_.train.batch,
                                .accumulate = config_.train.accumulate,
                                .ranks = n_ranks(),
                                .rank = machine_.rank(),
                                .steps = config_.train.steps - attempted_,
                                .prepare = [this](Batch& read) { engine_.stage(read); }});
}

}  // namespace octet
