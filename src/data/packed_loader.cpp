#include "data/packed_loader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/mixture.h"

namespace octet {
namespace {

std::string rows_text(const PackOptions& options) {
  if (options.packing == Packing::first_fit) return "first_fit";
  if (options.buckets == 1) return "single";
  return fmt::format("single in {} buckets, {} a step", options.buckets, options.step_rows);
}

}  // namespace

std::shared_ptr<const PackedRows> PackedEpochs::rows(int64_t epoch) {
  const std::lock_guard lock(mutex_);
  if (auto made = made_[epoch].lock()) return made;
  std::erase_if(made_, [](const auto& entry) { return entry.second.expired(); });
  auto rows = std::make_shared<const PackedRows>(
      pack_epoch(pieces_, options_, static_cast<uint64_t>(epoch)));
  made_[epoch] = rows;
  return rows;
}

PackedLoader::PackedLoader(TokenStream stream, const PackOptions& options)
    : stream_(std::move(stream)),
      options_(options),
      identity_(stream_.identity()),
      epochs_(std::make_shared<PackedEpochs>(find_pieces(stream_, options), options)),
      report_(pieces().report) {
  if (pieces().all.empty()) {
    throw Error(ErrorCode::bad_data,
                "[data] expected documents of at most {} tokens with a token to train on, got {} "
                "documents, {} of them longer (data.too_long)",
                options.seq + 1, report_.n_documents, report_.n_too_long);
  }
  report_ = report_with(pieces(), rows_of(0), options_);
}

const PackedRows& PackedLoader::rows_of(int64_t epoch) const {
  const auto found = rows_.find(epoch);
  if (found != rows_.end()) return *found->second;
  while (!rows_.empty() && rows_.begin()->first < epoch_) rows_.erase(rows_.begin());
  return *(rows_[epoch] = epochs_->rows(epoch));
}

PackedLoader::Place PackedLoader::after(int64_t n_rows) const {
  Place place{epoch_, position_ + n_rows};
  while (place.row >= rows_of(place.epoch).n_rows()) {
    place.row -= rows_of(place.epoch).n_rows();
    ++place.epoch;
  }
  return place;
}

std::span<const int64_t> PackedLoader::row_after(int64_t n_rows) const {
  const Place place = after(n_rows);
  return rows_of(place.epoch).row(place.row);
}

// Of the rows of the step that holds this one.
int64_t PackedLoader::length_after(int64_t n_rows) const {
  if (options_.buckets == 1) return options_.seq;
  const int64_t first = n_rows - n_rows % options_.step_rows;
  int64_t longest = 0;
  for (int64_t i = 0; i < options_.step_rows; ++i)
    longest = std::max(longest, pieces().row_length(row_after(first + i).front()));
  return longest;
}

Batch PackedLoader::rows_after(int64_t n_rows, int64_t batch, int64_t length) const {
  Batch result = empty_batch(batch, length, options_.tells_starts);
  for (int64_t i = 0; i < batch; ++i)
    write_row(stream_, pieces(), row_after(n_rows + i), i, result);
  return result;
}

Batch PackedLoader::peek(int64_t skip, int64_t batch) const {
  CHECK(skip >= 0 && batch >= 1);
  CHECK(options_.buckets == 1 || skip % options_.step_rows + batch <= options_.step_rows);
  return rows_after(skip, batch, length_after(skip));
}

RowCounts PackedLoader::count(int64_t n_rows) const {
  RowCounts counts{.items = {{"rows", n_rows}, {"samples", n_rows}}};
  int64_t length = 0;
  for (int64_t i = 0; i < n_rows; ++i) {
    if (i % options_.step_rows == 0) length = length_after(i);
    for (const int64_t id : row_after(i))
      counts.n_tokens += pieces().all[static_cast<size_t>(id)].places();
    counts.items["labels"] += rows_after(i, 1, length).n_labels();
    counts.n_padded_tokens += length;
  }
  return counts;
}

void PackedLoader::advance(int64_t n_rows) {
  CHECK(options_.buckets == 1 || n_rows % options_.step_rows == 0);
  const Place place = after(n_rows);
  epoch_ = place.epoch;
  position_ = place.row;
  rows_consumed_ += n_rows;
}

LoaderState PackedLoader::state() const {
  LoaderState state = {{"identity", fmt::format("{:016x}", identity_)},
                       {"tokens", std::to_string(stream_.n_tokens())},
                       {"seq", std::to_string(options_.seq)},
                       {"order", options_.shuffles ? "shuffled" : "sequential"},
                       {"rows", rows_text(options_)},
                       {"too_long", std::string(enum_name(options_.too_long))},
                       {"boundaries", options_.tells_starts ? "isolate" : "ignore"},
                       {"seed", std::to_string(options_.seed)},
                       {"epoch", std::to_string(epoch_)},
                       {"position", std::to_string(position_)},
                       {"drawn", std::to_string(rows_consumed_)}};
  const std::string weights = weights_text(stream_.parts());
  if (!weights.empty()) state["weights"] = weights;
  return state;
}

std::string PackedLoader::description() const {
  const PackReport& report = report_;
  std::string text =
      fmt::format("{} documents in {} rows of {}: {} tokens, {:.1f} % padding", report.n_documents,
                  report.n_rows, fmt::join(pieces().lengths, ", "), report.n_padded_tokens,
                  100 * report.padding_share());
  if (report.n_too_long > 0) {
    text += fmt::format("; {} do not fit ({}: {} tokens lost)", report.n_too_long,
                        enum_name(options_.too_long), report.n_lost_tokens);
  }
  if (report.n_without_labels > 0) {
    text += fmt::format("; {} hold nothing to train", report.n_without_labels);
  }
  return text;
}

std::vector<int64_t> PackedLoader::lengths() const {
  return options_.buckets == 1 ? std::vector<int64_t>{} : pieces().lengths;
}

void PackedLoader::restore(const LoaderState& state) {
  expect_same_source(
      state, this->state(),
      {"tokens", "seq", "order", "rows", "too_long", "boundaries", "weights", "seed"});
  constexpr int64_t kMax = int64_t{1} << 62;
  const int64_t drawn = state_number(state, "drawn", kMax);
  const int64_t epoch = state_number(state, "epoch", drawn + 1);  // an epoch has a row at least
  position_ = state_number(state, "position", rows_of(epoch).n_rows());
  epoch_ = epoch;
  rows_consumed_ = drawn;
}

PackedEval::PackedEval(TokenStream stream, PackOptions options, int64_t max_tokens,
                       const EvalLengths& lengths)
    : stream_(std::move(stream)), options_(options), turn_rows_(lengths.turn_rows) {
  CHECK(turn_rows_ >= 1 && (lengths.shorter.empty() || options.packing == Packing::single));
  options_.shuffles = false;
  options_.buckets = 1;
  pieces_ = find_pieces(stream_, options_);
  int64_t n_tokens = 0;
  size_t n = 0;
  while (n < pieces_.all.size() && n_tokens < max_tokens) n_tokens += pieces_.all[n++].n;
  pieces_.all.resize(n);
  for (size_t i = lengths.shorter.size(); i-- > 0;)
    pieces_.lengths.insert(pieces_.lengths.begin(), lengths.shorter[i]);
  std::ranges::stable_sort(pieces_.all, {}, [&](const Piece& piece) {
    return *std::ranges::lower_bound(pieces_.lengths, piece.places());
  });
  rows_ = pack_epoch(pieces_, options_, 0);
}

// The last row is the longest.
int64_t PackedEval::length_of_turn(int64_t first_row) const {
  const int64_t end = first_row - first_row % turn_rows_ + turn_rows_;
  if (pieces_.lengths.size() == 1 || n_rows() == 0) return options_.seq;
  return pieces_.row_length(rows_.row(std::min(end, n_rows()) - 1).front());
}

Batch PackedEval::at(int64_t first_row, int64_t batch) const {
  CHECK(pieces_.lengths.size() == 1 || first_row % turn_rows_ + batch <= turn_rows_);
  Batch result = empty_batch(batch, length_of_turn(first_row), options_.tells_starts);
  for (int64_t i = 0; i < batch && n_rows() > 0; ++i) {
    const int64_t row = filled_row(first_row + i, first_row, n_rows());
    write_row(stream_, pieces_, rows_.row(row), i, result);
    if (row != first_row + i) mask_row(result, i);
  }
  return result;
}

}  // namespace octet
