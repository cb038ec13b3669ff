#include "data/row_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace octet {
namespace {

class RowSlice : public RowSource {
 public:
  RowSlice(std::shared_ptr<const RowSource> source, int64_t begin, int64_t end)
      : source_(std::move(source)), begin_(begin), end_(end) {}
  int64_t n_samples() const override { return end_ - begin_; }
  int64_t rows_per_sample() const override { return source_->rows_per_sample(); }
  const std::vector<InputSpec>& inputs() const override { return source_->inputs(); }
  bool tells_lengths() const override { return source_->tells_lengths(); }
  int64_t longest() const override { return source_->longest(); }
  int64_t places(int64_t sample) const override { return source_->places(begin_ + sample); }
  int64_t source_places(int64_t sample) const override {
    return source_->source_places(begin_ + sample);
  }
  int64_t source_seq() const override { return source_->source_seq(); }
  std::vector<InputSpec> inputs_of(int64_t source) const override {
    return source_->inputs_of(source);
  }
  std::string description(const std::string& rows) const override {
    return source_->description(rows);
  }
  uint64_t identity() const override {
    const uint64_t words[] = {source_->identity(), static_cast<uint64_t>(begin_),
                              static_cast<uint64_t>(end_)};
    return xxh64(as_bytes(words));
  }
  std::optional<int64_t> n_counted(int64_t sample, const RowCell& where,
                                   const InputSpec& input) const override {
    return source_->n_counted(begin_ + sample, where, input);
  }
  bool decodes() const override { return source_->decodes(); }
  int64_t sample_bytes() const override { return source_->sample_bytes(); }
  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    source_->write(begin_ + sample, where, to);
  }

 private:
  std::shared_ptr<const RowSource> source_;
  int64_t begin_, end_;
};

}  // namespace

std::shared_ptr<const RowSource> slice_rows(std::shared_ptr<const RowSource> source, int64_t begin,
                                            int64_t end) {
  CHECK(begin >= 0 && begin <= end && end <= source->n_samples());
  return std::make_shared<RowSlice>(std::move(source), begin, end);
}

std::shared_ptr<const RowSource> first_rows(std::shared_ptr<const RowSource> source,
                                            int64_t max_samples) {
  const int64_t n = source->n_samples();
  return slice_rows(std::move(source), 0, max_samples > 0 ? std::min(max_samples, n) : n);
}

bool are_arrays(const std::vector<std::string>& paths) {
  return std::ranges::any_of(paths, [](const auto& path) { return path.ends_with(kArrayFiles); });
}

int64_t first_held_out(int64_t n_samples, double fraction) {
  if (fraction <= 0 || n_samples < 2) return n_samples;
  const int64_t n = std::llround(fraction * static_cast<double>(n_samples));
  return n_samples - std::clamp<int64_t>(n, 1, n_samples - 1);
}

}  // namespace octet
