#include "data/row_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace octet {
namespace {

constexpr uint64_t kRandomSamples = name_hash("data.random_samples");

// Sizes of rows of two texts in buckets.
std::vector<RowSize> sizes_of(const RowSource& source, const RowOptions& options) {
  if (options.buckets == 1 || source.source_seq() == 0) return {};
  CHECK(options.packing == Packing::single && options.step_rows % options.step_batches == 0);
  std::vector<TextLengths> rows;
  for (int64_t i = 0; i < source.n_samples(); ++i)
    rows.push_back({.target = source.places(i), .source = source.source_places(i)});
  return batch_sizes(rows,
                     {.rows = options.step_rows / options.step_batches,
                      .seq = options.seq,
                      .source = source.source_seq()},
                     options.buckets);
}

std::vector<int64_t> lengths_of(const RowSource& source, const RowOptions& options) {
  CHECK(options.seq >= 1 && options.step_rows >= 1);
  if (!options.lengths.empty()) return options.lengths;
  if (options.buckets == 1 || source.source_seq() > 0) return {options.seq};
  CHECK(options.packing == Packing::single);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < source.n_samples(); ++i) places.push_back(source.places(i));
  return row_lengths(places, options.seq, options.buckets);
}

}  // namespace

RowPlan::RowPlan(std::shared_ptr<const RowSource> source, const RowOptions& options)
    : source_(std::move(source)),
      options_(options),
      sizes_(sizes_of(*source_, options)),
      lengths_(lengths_of(*source_, options)),
      mixture_(source_->n_samples(), source_->parts(),
               {.shuffles = options.order == WindowOrder::shuffled, .seed = options.seed}),
      pool_(source_->decodes() ? options.threads : 1) {}

int64_t RowPlan::row_length(int64_t sample) const {
  return *std::ranges::lower_bound(lengths_, source_->places(sample));
}

int64_t RowPlan::size_of(int64_t sample) const {
  const int64_t target = source_->places(sample), source = source_->source_places(sample);
  const auto holds = [&](const RowSize& size) {
    return size.seq >= target && size.source >= source;
  };
  return std::ranges::find_if(sizes_, holds) - sizes_.begin();
}

PackedRows RowPlan::pack(int64_t epoch) const {
  std::vector<int64_t> order(static_cast<size_t>(mixture_.n_items()));
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = mixture_.item(static_cast<uint64_t>(epoch), static_cast<int64_t>(i));
  if (options_.packing == Packing::first_fit) {
    return first_fit(
        order, [this](int64_t sample) { return source_->places(sample); }, options_.seq);
  }
  if (!sizes_.empty()) {
    return in_batches(
        order, [this](int64_t sample) { return size_of(sample); }, sizes_, options_.step_batches);
  }
  // Each epoch has as many rows.
  return in_steps(order, [this](int64_t sample) { return row_length(sample); },
                  {.rows = options_.step_rows,
                   .n_begun = epoch * std::ssize(order) % options_.step_rows,
                   .lengths = lengths_});
}

std::shared_ptr<const PackedRows> RowPlan::packed(int64_t epoch) const {
  constexpr size_t kMaxKept = 2;
  const std::lock_guard lock(packed_mutex_);
  if (const auto made = packed_.find(epoch); made != packed_.end()) return made->second;
  if (packed_.size() == kMaxKept)
    packed_.erase(epoch > packed_.begin()->first ? packed_.begin() : std::prev(packed_.end()));
  return packed_[epoch] = std::make_shared<const PackedRows>(pack(epoch));
}

int64_t RowPlan::rows_of_epoch(int64_t epoch) const {
  return is_packed() ? packed(epoch)->n_rows() : mixture_.n_items() * source_->rows_per_sample();
}

RowPlace RowPlan::after(RowPlace place, int64_t n_rows) const {
  place.row += n_rows;
  place.drawn += n_rows;
  for (int64_t n = rows_of_epoch(place.epoch); place.row >= n; n = rows_of_epoch(place.epoch)) {
    place.row -= n;
    ++place.epoch;
  }
  return place;
}

std::vector<int64_t> RowPlan::samples(const RowPlace& place) const {
  if (is_packed()) {
    const auto rows = packed(place.epoch);
    const auto row = rows->row(place.row);
    return {row.begin(), row.end()};
  }
  const int64_t n_rows = source_->rows_per_sample();
  if (options_.order == WindowOrder::random) {
    return {uniform_index(source_->n_samples(), options_.seed, kRandomSamples,
                          static_cast<uint64_t>(place.drawn / n_rows))};
  }
  return {mixture_.item(static_cast<uint64_t>(place.epoch), place.row / n_rows)};
}

SizedStep RowPlan::sized_step(const RowPlace& place) const {
  const auto rows = packed(place.epoch);
  return *std::prev(std::ranges::upper_bound(rows->steps, place.row, {}, &SizedStep::first));
}

int64_t RowPlan::step_rows(const RowPlace& step) const {
  if (sizes_.empty()) return options_.step_rows;
  return sizes_[sized_step(step).size].rows * options_.step_batches;
}

bool RowPlan::begins_step(const RowPlace& place) const {
  return sizes_.empty() || sized_step(place).first == place.row;
}

bool RowPlan::fills_up(const RowPlace& place) const {
  if (sizes_.empty()) return false;
  const SizedStep step = sized_step(place);
  return place.row - step.first >= step.n_held;
}

RowSize RowPlan::size(const RowPlace& step) const {
  if (!sizes_.empty()) return sizes_[sized_step(step).size];
  return {.rows = options_.step_rows, .seq = length(step)};
}

int64_t RowPlan::length(RowPlace step) const {
  if (lengths_.size() == 1) return lengths_.front();
  int64_t longest = 0;
  for (int64_t i = 0; i < options_.step_rows; ++i, step = after(step, 1))
    longest = std::max(longest, row_length(samples(step).front()));
  return longest;
}

RowCell RowPlan::cell(const RowPlace& place, int64_t row, RowUse use) const {
  return {.row = row,
          .use = use,
          .seed = use == RowUse::training ? options_.seed : 0,
          .drawn = place.drawn};
}

Batch RowPlan::read(const std::vector<RowPlace>& rows, const RowSize& size, RowUse use) const {
  const int64_t n_rows = source_->rows_per_sample();
  Batch batch{.batch = std::ssize(rows), .seq = size.seq, .rows_per_sample = n_rows};
  CHECK(batch.batch >= 1);
  if (batch.batch % n_rows != 0) {
    throw Error(ErrorCode::invalid_argument,
                "[data] expected a batch of whole samples, a multiple of {} rows, got {}", n_rows,
                batch.batch);
  }
  const std::vector<InputSpec> sized =
      size.source > 0 ? source_->inputs_of(size.source) : source_->inputs();
  for (const InputSpec& input : sized) batch.add(input);
  if (source_->tells_lengths()) batch.lengths.assign(rows.size(), size.seq);
  const std::lock_guard lock(pool_mutex_);
  pool_.run(batch.batch / n_rows, [&](int64_t i, int) {
    const RowPlace& place = rows[static_cast<size_t>(i * n_rows)];
    RowCell where = cell(place, i * n_rows, use);
    for (const int64_t sample : samples(place)) {
      source_->write(sample, where, batch);
      where.column += source_->places(sample);
    }
  });
  for (int64_t i = 0; i < batch.batch; ++i) {
    if (fills_up(rows[static_cast<size_t>(i)])) mask_row(batch, i);
  }
  return batch;
}

bool RowPlan::counts_tokens() const {
  return std::ranges::any_of(source_->inputs(),
                             [](const InputSpec& input) { return input.per == Per::token; });
}

RowCounts RowPlan::count(RowPlace place, int64_t n_rows) const {
  const int64_t n_sample_rows = source_->rows_per_sample();
  RowCounts counts{.items = {{"rows", n_rows}, {"samples", n_rows / n_sample_rows}},
                   .has_tokens = counts_tokens()};
  std::vector<InputSpec> counted;
  for (const InputSpec& input : source_->inputs()) {
    if (input.fill != Fill::ignored) continue;
    counted.push_back(input);
    counts.items[input.name] = 0;
  }
  RowSize size;
  for (int64_t row = 0, end = 0; row < n_rows; row += n_sample_rows) {
    if (row >= end) {
      size = this->size(place);
      end = row + step_rows(place);
    }
    const int64_t n_own = n_sample_rows * (counts.has_tokens ? size.seq : 1);
    counts.n_padded_tokens += n_own;
    if (fills_up(place)) {
      for (const char* name : {"rows", "samples"}) --counts.items[name];
      place = after(place, n_sample_rows);
      continue;
    }
    const std::vector<int64_t> held = samples(place);
    for (const int64_t sample : held) {
      const int64_t n_places = source_->places(sample);
      counts.n_tokens += n_places > 0 ? n_places : n_own;
    }
    const RowCell where = cell(place, row, RowUse::training);
    std::optional<Batch> read_row;
    for (const InputSpec& input : counted) {
      int64_t& n = counts.items[input.name];
      if (const auto told = source_->n_counted(held.front(), where, input)) {
        n += *told;
        continue;
      }
      if (!read_row)
        read_row = read(std::vector(static_cast<size_t>(n_sample_rows), place), size, where.use);
      n += read_row->n_items(input.name);
    }
    place = after(place, n_sample_rows);
  }
  return counts;
}

PackReport RowPlan::report() const {
  if (!sizes_.empty()) return sized_report();
  PackReport report{.n_rows = rows_of_epoch(0)};
  int64_t longest = 0;
  for (int64_t row = 0; row < report.n_rows; ++row) {
    if (row % options_.step_rows == 0) longest = 0;
    for (const int64_t sample : samples({.row = row})) {
      report.n_used += source_->places(sample);
      longest = std::max(longest, row_length(sample));
    }
    const bool ends_step = (row + 1) % options_.step_rows == 0 || row + 1 == report.n_rows;
    if (ends_step) report.n_padded_tokens += longest * (row % options_.step_rows + 1);
  }
  return report;
}

PackReport RowPlan::sized_report() const {
  PackReport report;
  const auto rows = packed(0);
  for (const SizedStep& step : rows->steps) {
    const RowSize& size = sizes_[step.size];
    report.n_rows += step.n_held;
    report.n_padded_tokens += size.rows * options_.step_batches * (size.seq + size.source);
    for (int64_t i = 0; i < step.n_held; ++i) {
      const int64_t sample = rows->row(step.first + i).front();
      report.n_used += source_->places(sample) + source_->source_places(sample);
    }
  }
  return report;
}

std::string RowPlan::sizes_text() const {
  if (sizes_.empty()) return fmt::format("{}", fmt::join(lengths_, ", "));
  std::vector<std::string> texts;
  for (const RowSize& size : sizes_)
    texts.push_back(fmt::format("{} x ({} + {})", size.rows, size.seq, size.source));
  return fmt::format("{} steps of {}", steps_of_epoch(0), fmt::join(texts, ", "));
}

}  // namespace octet
