#include "data/source_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace octet {
namespace {

class SourceRowSource : public RowSource {
 public:
  SourceRowSource(SourceRows rows, SourceRowsOptions options)
      : rows_(std::move(rows)),
        options_(std::move(options)),
        inputs_{tokens_input(), options_.labels, options_.source, options_.length} {
    if (rows_.n() == 0)
      throw Error(ErrorCode::bad_data, "[data] expected a pair of texts at least, got none");
    CHECK(rows_.target_ends.size() == rows_.source_ends.size());
    for (int64_t i = 0; i < rows_.n(); ++i) {
      const int64_t n_source = std::ssize(source(i)), n_target = std::ssize(target(i));
      CHECK(n_source > 0 && n_source <= options_.source.n_inner() && n_target > 0);
      longest_ = std::max(longest_, n_target);
    }
    Xxh64 hash;
    hash.update_sized(rows_.sources);
    hash.update_sized(rows_.source_ends);
    hash.update_sized(rows_.targets);
    hash.update_sized(rows_.target_ends);
    identity_ = hash.digest();
  }

  int64_t n_samples() const override { return rows_.n(); }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return true; }
  int64_t longest() const override { return longest_; }
  int64_t places(int64_t sample) const override { return std::ssize(target(sample)); }
  int64_t source_places(int64_t sample) const override { return std::ssize(source(sample)); }
  int64_t source_seq() const override { return options_.source.n_inner(); }
  std::vector<InputSpec> inputs_of(int64_t n_source) const override {
    std::vector<InputSpec> sized = inputs_;
    std::ranges::find(sized, options_.source.name, &InputSpec::name)->inner = {n_source};
    return sized;
  }
  std::string description(const std::string& rows) const override {
    return fmt::format("pairs of texts in {}", rows);
  }
  uint64_t identity() const override { return identity_; }
  int64_t sample_bytes() const override {
    const int64_t n_tokens = std::ssize(rows_.sources) + std::ssize(rows_.targets);
    return std::max<int64_t>(n_tokens * static_cast<int64_t>(sizeof(int32_t)) / rows_.n(), 1);
  }
  std::optional<int64_t> n_counted(int64_t sample, const RowCell&,
                                   const InputSpec& spec) const override {
    if (spec.name != options_.labels.name) return std::nullopt;
    return std::ssize(target(sample));
  }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    write_pair(source(sample), target(sample), options_, where.row, to);
  }

 private:
  static std::span<const int32_t> part(const std::vector<int32_t>& tokens,
                                       const std::vector<int64_t>& ends, int64_t i) {
    const auto at = static_cast<size_t>(i);
    const auto begin = static_cast<size_t>(i == 0 ? 0 : ends[at - 1]);
    return std::span(tokens).subspan(begin, static_cast<size_t>(ends[at]) - begin);
  }
  std::span<const int32_t> source(int64_t i) const {
    return part(rows_.sources, rows_.source_ends, i);
  }
  std::span<const int32_t> target(int64_t i) const {
    return part(rows_.targets, rows_.target_ends, i);
  }

  SourceRows rows_;
  SourceRowsOptions options_;
  std::vector<InputSpec> inputs_;
  int64_t longest_ = 0;
  uint64_t identity_ = 0;
};

}  // namespace

void write_pair(std::span<const int32_t> source, std::span<const int32_t> target,
                const SourceRowsOptions& options, int64_t row, Batch& to) {
  auto& ids_of_rows = to.ints(options.source.name);
  const int64_t n_inner = std::ssize(ids_of_rows) / to.batch;
  CHECK(std::ssize(target) <= to.seq && std::ssize(source) <= n_inner);
  const auto tokens = to.ints("tokens").begin() + row * to.seq;
  *tokens = options.start;
  std::fill(std::copy_n(target.begin(), target.size() - 1, tokens + 1), tokens + to.seq,
            options.padding);
  const auto labels = to.ints(options.labels.name).begin() + row * to.seq;
  std::fill(std::ranges::copy(target, labels).out, labels + to.seq, kIgnoredLabel);
  const auto ids = ids_of_rows.begin() + row * n_inner;
  std::fill(std::ranges::copy(source, ids).out, ids + n_inner, options.padding);
  to.ints(options.length.name)[static_cast<size_t>(row)] = static_cast<int32_t>(source.size());
  to.lengths[static_cast<size_t>(row)] = std::ssize(target);
}

void SourceRows::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  sources.insert(sources.end(), source.begin(), source.end());
  targets.insert(targets.end(), target.begin(), target.end());
  source_ends.push_back(std::ssize(sources));
  target_ends.push_back(std::ssize(targets));
}

std::shared_ptr<const RowSource> source_rows(SourceRows rows, const SourceRowsOptions& options) {
  return std::make_shared<SourceRowSource>(std::move(rows), options);
}

}  // namespace octet
