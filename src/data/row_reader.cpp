#include "data/row_reader.h"

#include <utility>

namespace octet {

RowReader::RowReader(const RowLoader& loader, const RowReaderOptions& options)
    : loader_(loader), options_(options), thread_([this] { read_all(); }) {}

RowReader::~RowReader() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RowReader::read_all() {
  bool goes_on = true;
  for (int64_t step = 0; step < options_.steps && goes_on; ++step) {
    const int64_t batch = loader_.batch_rows(options_.batch);
    for (int64_t i = 0; i < options_.accumulate && goes_on; ++i) {
      Read next = read((i * options_.ranks + options_.rank) * batch, batch);
      const bool failed = next.error != nullptr;
      goes_on = put(std::move(next)) && !failed;
    }
    if (goes_on) loader_.advance(batch * options_.accumulate * options_.ranks);
  }
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

RowReader::Read RowReader::read(int64_t skip, int64_t batch) const {
  Read result{.first_row = loader_.rows_consumed() + skip};
  try {
    result.batch = loader_.peek(skip, batch);
    if (options_.prepare) options_.prepare(result.batch);
  } catch (...) {
    result.error = std::current_exception();
  }
  return result;
}

bool RowReader::put(Read read) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ends_ || std::ssize(reads_) < options_.ahead; });
  if (ends_) return false;
  reads_.push_back(std::move(read));
  changed_.notify_all();
  return true;
}

std::optional<Batch> RowReader::take(int64_t first_row) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_over_ || !reads_.empty(); });
  if (reads_.empty() || reads_.front().first_row != first_row) return std::nullopt;
  Read read = std::move(reads_.front());
  reads_.pop_front();
  changed_.notify_all();
  if (read.error) std::rethrow_exception(read.error);
  return std::move(read.batch);
}

}  // namespace octet
