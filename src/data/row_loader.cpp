#include <fmt/ranges.h>

#include <utility>

#include "base/error.h"
#include "base/parse_text.h"
#include "data/row_plan.h"
#include "data/text_samples.h"

namespace octet {
namespace {

constexpr const char* kContent = "content";

RowOptions in_order(RowOptions options) {
  options.order = WindowOrder::sequential;
  options.buckets = 1;
  return options;
}

std::string rows_text(const RowOptions& options, bool has_sizes) {
  if (options.packing == Packing::first_fit) return "first_fit";
  if (options.buckets == 1) return "single";
  if (has_sizes) {
    return fmt::format("single in {} buckets by tokens, {} a step in {} batches", options.buckets,
                       options.step_rows, options.step_batches);
  }
  return fmt::format("single in {} buckets, {} a step", options.buckets, options.step_rows);
}

// A text of a state, which a file may have damaged. Throws Error{bad_data} where a key is missing.
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
  // Earlier versions recorded an identity of contents and names of files: of those the sizes below
  // are compared alone.
  if (state.contains(kContent) && text_at(state, kContent) != now.at(kContent)) {
    const std::string unit = now.contains("samples") ? "samples" : "tokens";
    throw Error(ErrorCode::bad_data,
                "[data] the training data changed: expected {} {} of content {}, got {} of {}",
                text_at(state, unit), unit, text_at(state, kContent), now.at(unit),
                now.at(kContent));
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

RowLoader::RowLoader(std::shared_ptr<const RowSource> source, const RowOptions& options)
    : plan_(std::make_shared<const RowPlan>(std::move(source), options)),
      identity_(plan_->source().identity()) {  // now: a state can be saved when data cannot be read
  CHECK(plan_->rows_of_epoch(0) >= 1);
}

RowLoader::RowLoader(const TokenStream& text, const RowOptions& options)
    : RowLoader(training_text(text, options), options) {}

Batch RowLoader::peek(int64_t skip, int64_t batch) const {
  const bool has_sizes = !plan_->sizes().empty();
  const int64_t step_rows = this->step_rows(), n_before = has_sizes ? skip : skip % step_rows;
  CHECK(skip >= 0 && skip % plan_->source().rows_per_sample() == 0);
  CHECK(!has_sizes || skip + batch <= step_rows);
  CHECK(plan_->lengths().size() == 1 || n_before + batch <= step_rows);
  std::vector<RowPlace> rows = {plan_->after(at_, skip)};
  while (std::ssize(rows) < batch) rows.push_back(plan_->after(rows.back(), 1));
  return plan_->read(rows, plan_->size(plan_->after(at_, skip - n_before)), RowUse::training);
}

void RowLoader::advance(int64_t n_rows) {
  CHECK(plan_->lengths().size() == 1 || n_rows % plan_->options().step_rows == 0);
  at_ = plan_->after(at_, n_rows);
  CHECK(plan_->begins_step(at_));
}

std::string RowLoader::description() const {
  if (plan_->options().packing == Packing::none) return {};
  const PackReport report = plan_->report();
  return plan_->source().description(
      fmt::format("{} rows {} {}: {} tokens, {:.1f} % padding", report.n_rows,
                  plan_->sizes().empty() ? "of" : "in", plan_->sizes_text(), report.n_padded_tokens,
                  100 * report.padding_share()));
}

LoaderState RowLoader::state() const {
  const RowOptions& options = plan_->options();
  LoaderState state = plan_->source().state();
  const bool is_text = !state.contains("samples");
  // Texts keep the spelling that they have always had.
  state["order"] =
      is_text && options.order == WindowOrder::shuffled ? "shuffled" : enum_name(options.order);
  state[kContent] = fmt::format("{:016x}", identity_);
  state["seq"] = std::to_string(options.seq);
  state["seed"] = std::to_string(options.seed);
  state["epoch"] = std::to_string(at_.epoch);
  state["position"] = std::to_string(at_.row);
  const std::string weights = weights_text(plan_->source().parts());
  if (!weights.empty()) state["weights"] = weights;
  if (options.packing == Packing::none) return state;
  state["rows"] = rows_text(options, !plan_->sizes().empty());
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
    if (!plan_->begins_step(place)) {
      throw Error(ErrorCode::bad_data,
                  "[data] loader state: 'position' must be the first row of a step, got {}",
                  place.row);
    }
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
      plan_.read(rows, plan_.size(plan_.after({}, first_row - n_before)), RowUse::evaluation);
  for (int64_t i = 0; i < batch; ++i) {
    if (rows[static_cast<size_t>(i)].row != first_row + i) mask_row(result, i);
  }
  return result;
}

}  // namespace octet
