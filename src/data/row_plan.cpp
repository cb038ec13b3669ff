#include "data/row_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/parse_text.h"
#include "base/philox.h"
#include "data/permutation.h"
#include "data/text_samples.h"

namespace octet {
namespace {

constexpr uint64_t kRandomSamples = name_hash("data.random_samples");

std::vector<int64_t> lengths_of(const RowSource& source, const RowOptions& options) {
  CHECK(options.seq >= 1 && options.step_rows >= 1);
  if (!options.lengths.empty()) return options.lengths;
  if (options.buckets == 1) return {options.seq};
  CHECK(options.packing == Packing::single);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < source.n_samples(); ++i) places.push_back(source.places(i));
  return row_lengths(places, options.seq, options.buckets);
}

RowOptions in_order(RowOptions options) {
  options.order = WindowOrder::sequential;
  options.buckets = 1;
  return options;
}

std::string rows_text(const RowOptions& options) {
  if (options.packing == Packing::first_fit) return "first_fit";
  if (options.buckets == 1) return "single";
  return fmt::format("single in {} buckets, {} a step", options.buckets, options.step_rows);
}

// Of a state, which a file may have damaged. Throws Error{bad_data} where a key is missing.
const std::string& text_at(const LoaderState& state, const std::string& key) {
  const auto it = state.find(key);
  if (it == state.end())
    throw Error(ErrorCode::bad_data, "[data] loader state: expected '{}', got none", key);
  return it->second;
}

// Or is no number from 0 to below `bound`.
int64_t number_at(const LoaderState& state, const std::string& key, int64_t bound) {
  const std::string& text = text_at(state, key);
  const auto value = parse_number<int64_t>(text);
  if (!value || *value < 0 || *value >= bound) {
    throw Error(ErrorCode::bad_data, "[data] loader state: '{}' must be from 0 to {}, got '{}'",
                key, bound - 1, text);
  }
  return *value;
}

// Throws Error{bad_data} unless the data and the options are the same.
void expect_same(const LoaderState& state, const LoaderState& now) {
  if (text_at(state, "identity") != now.at("identity")) {
    const std::string unit = now.contains("samples") ? "samples" : "tokens";
    throw Error(ErrorCode::bad_data,
                "[data] the training data changed: expected {} {} of identity {}, got {} of {}",
                text_at(state, unit), unit, text_at(state, "identity"), now.at(unit),
                now.at("identity"));
  }
  for (const std::string key :
       {"samples", "tokens", "seq", "order", "rows", "too_long", "boundaries", "weights", "seed"}) {
    const bool is_there = now.contains(key);
    if (!is_there && !state.contains(key)) continue;  // a key of some data alone
    if (is_there && text_at(state, key) == now.at(key)) continue;
    throw Error(ErrorCode::bad_data,
                "[data] '{}' must stay as in the checkpoint: expected {}, got {}", key,
                text_at(state, key), is_there ? now.at(key) : "none");
  }
}

}  // namespace

RowPlan::RowPlan(std::shared_ptr<const RowSource> source, const RowOptions& options)
    : source_(std::move(source)),
      options_(options),
      lengths_(lengths_of(*source_, options)),
      mixture_(source_->n_samples(), source_->parts(),
               {.shuffles = options.order == WindowOrder::shuffled, .seed = options.seed}),
      pool_(source_->decodes() ? options.threads : 1) {}

int64_t RowPlan::row_length(int64_t sample) const {
  return *std::ranges::lower_bound(lengths_, source_->places(sample));
}

PackedRows RowPlan::pack(int64_t epoch) const {
  std::vector<int64_t> order(static_cast<size_t>(mixture_.n_items()));
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = mixture_.item(static_cast<uint64_t>(epoch), static_cast<int64_t>(i));
  if (options_.packing == Packing::first_fit) {
    return first_fit(
        order, [this](int64_t sample) { return source_->places(sample); }, options_.seq);
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

Batch RowPlan::read(const std::vector<RowPlace>& rows, int64_t length, RowUse use) const {
  const int64_t n_rows = source_->rows_per_sample();
  Batch batch{.batch = std::ssize(rows), .seq = length, .rows_per_sample = n_rows};
  CHECK(batch.batch >= 1);
  if (batch.batch % n_rows != 0) {
    throw Error(ErrorCode::invalid_argument,
                "[data] expected a batch of whole samples, a multiple of {} rows, got {}", n_rows,
                batch.batch);
  }
  for (const InputSpec& input : source_->inputs()) batch.add(input);
  if (source_->tells_lengths()) batch.lengths.assign(rows.size(), length);
  const std::lock_guard lock(pool_mutex_);
  pool_.run(batch.batch / n_rows, [&](int64_t i, int) {
    const RowPlace& place = rows[static_cast<size_t>(i * n_rows)];
    RowCell where = cell(place, i * n_rows, use);
    for (const int64_t sample : samples(place)) {
      source_->write(sample, where, batch);
      where.column += source_->places(sample);
    }
  });
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
  int64_t length = 0;
  for (int64_t row = 0; row < n_rows; row += n_sample_rows) {
    if (row % options_.step_rows == 0) length = this->length(place);
    const int64_t n_own = n_sample_rows * (counts.has_tokens ? length : 1);
    counts.n_padded_tokens += n_own;
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
        read_row = read(std::vector(static_cast<size_t>(n_sample_rows), place), length, where.use);
      n += read_row->n_items(input.name);
    }
    place = after(place, n_sample_rows);
  }
  return counts;
}

PackReport RowPlan::report() const {
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

RowLoader::RowLoader(std::shared_ptr<const RowSource> source, const RowOptions& options)
    : plan_(std::make_shared<const RowPlan>(std::move(source), options)),
      identity_(plan_->source().identity()) {  // now: a state can be saved when data cannot be read
  CHECK(plan_->rows_of_epoch(0) >= 1);
}

RowLoader::RowLoader(const TokenStream& text, const RowOptions& options)
    : RowLoader(training_text(text, options), options) {}

Batch RowLoader::peek(int64_t skip, int64_t batch) const {
  const int64_t step_rows = plan_->options().step_rows, n_before = skip % step_rows;
  CHECK(skip >= 0 && skip % plan_->source().rows_per_sample() == 0);
  CHECK(plan_->lengths().size() == 1 || n_before + batch <= step_rows);
  std::vector<RowPlace> rows = {plan_->after(at_, skip)};
  while (std::ssize(rows) < batch) rows.push_back(plan_->after(rows.back(), 1));
  return plan_->read(rows, plan_->length(plan_->after(at_, skip - n_before)), RowUse::training);
}

void RowLoader::advance(int64_t n_rows) {
  CHECK(plan_->lengths().size() == 1 || n_rows % plan_->options().step_rows == 0);
  at_ = plan_->after(at_, n_rows);
}

std::string RowLoader::description() const {
  if (plan_->options().packing == Packing::none) return {};
  const PackReport report = plan_->report();
  return plan_->source().description(fmt::format(
      "{} rows of {}: {} tokens, {:.1f} % padding", report.n_rows,
      fmt::join(plan_->lengths(), ", "), report.n_padded_tokens, 100 * report.padding_share()));
}

LoaderState RowLoader::state() const {
  const RowOptions& options = plan_->options();
  LoaderState state = plan_->source().state();
  const bool is_text = !state.contains("samples");
  // As texts have always spelled it.
  state["order"] =
      is_text && options.order == WindowOrder::shuffled ? "shuffled" : enum_name(options.order);
  state["identity"] = fmt::format("{:016x}", identity_);
  state["seq"] = std::to_string(options.seq);
  state["seed"] = std::to_string(options.seed);
  state["epoch"] = std::to_string(at_.epoch);
  state["position"] = std::to_string(at_.row);
  const std::string weights = weights_text(plan_->source().parts());
  if (!weights.empty()) state["weights"] = weights;
  if (options.packing == Packing::none) return state;
  state["rows"] = rows_text(options);
  state["drawn"] = std::to_string(at_.drawn);
  return state;
}

void RowLoader::restore(const LoaderState& state) {
  expect_same(state, this->state());
  RowPlace place;
  if (plan_->options().packing != Packing::none) {
    constexpr int64_t kMax = int64_t{1} << 62;
    place.drawn = number_at(state, "drawn", kMax);
    place.epoch = number_at(state, "epoch", place.drawn + 1);  // an epoch has a row at least
    place.row = number_at(state, "position", rows_of_epoch(place.epoch));
  } else {
    const int64_t n_rows = rows_of_epoch(0);
    place.epoch = number_at(state, "epoch", INT64_MAX / n_rows);
    place.row = number_at(state, "position", n_rows);
    place.drawn = place.epoch * n_rows + place.row;
  }
  at_ = place;
}

SampleEval::SampleEval(std::shared_ptr<const RowSource> source, const RowOptions& options)
    : plan_(std::move(source), in_order(options)) {}

SampleEval::SampleEval(const TokenStream& text, const RowOptions& options, int64_t max_tokens)
    : SampleEval(evaluation_text(text, options, max_tokens), options) {}

Batch SampleEval::at(int64_t first_row, int64_t batch) const {
  const int64_t step_rows = plan_.options().step_rows, n_before = first_row % step_rows;
  CHECK(first_row >= 0 && first_row % plan_.source().rows_per_sample() == 0);
  CHECK(n_rows() > 0 && (plan_.lengths().size() == 1 || n_before + batch <= step_rows));
  std::vector<RowPlace> rows;
  for (int64_t row = first_row; row < first_row + batch; ++row) {
    const int64_t filled = filled_row(row, first_row, n_rows());
    rows.push_back({.row = filled, .drawn = filled});
  }
  Batch result =
      plan_.read(rows, plan_.length(plan_.after({}, first_row - n_before)), RowUse::evaluation);
  for (int64_t i = 0; i < batch; ++i) {
    if (rows[static_cast<size_t>(i)].row != first_row + i) mask_row(result, i);
  }
  return result;
}

}  // namespace octet
