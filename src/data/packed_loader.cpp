#include "data/packed_loader.h"

#include <utility>

#include "base/error.h"

namespace octet {
PackedLoader::PackedLoader(TokenStream stream, const PackOptions& options)
    : stream_(std::move(stream)),
      options_(options),
      identity_(stream_.identity()),
      pieces_(find_pieces(stream_, options)) {
  if (pieces_.all.empty()) {
    throw Error(ErrorCode::bad_data,
                "[data] expected documents of at most {} tokens with a token to train on, got {} "
                "documents, {} of them longer (data.too_long)",
                options.seq + 1, pieces_.report.n_documents, pieces_.report.n_too_long);
  }
  pieces_.report = report_with(pieces_, rows_of(0));
}

const PackedRows& PackedLoader::rows_of(int64_t epoch) const {
  const auto found = rows_.find(epoch);
  if (found != rows_.end()) return found->second;
  while (!rows_.empty() && rows_.begin()->first < epoch_) rows_.erase(rows_.begin());
  return rows_[epoch] = pack_epoch(pieces_, options_, static_cast<uint64_t>(epoch));
}

PackedLoader::Place PackedLoader::after(int64_t n_rows) const {
  Place place{epoch_, position_ + n_rows};
  while (place.row >= rows_of(place.epoch).n_rows()) {
    place.row -= rows_of(place.epoch).n_rows();
    ++place.epoch;
  }
  return place;
}

Batch PackedLoader::peek(int64_t skip, int64_t batch) const {
  CHECK(skip >= 0 && batch >= 1);
  Batch result = empty_batch(batch, options_.seq, options_.tells_starts);
  for (int64_t i = 0; i < batch; ++i) {
    const Place place = after(skip + i);
    write_row(stream_, pieces_, rows_of(place.epoch).row(place.row), i, result);
  }
  return result;
}

RowCounts PackedLoader::count(int64_t n_rows) const {
  RowCounts counts;
  for (int64_t i = 0; i < n_rows; ++i) {
    const Place place = after(i);
    for (const int64_t id : rows_of(place.epoch).row(place.row)) {
      counts.n_tokens += pieces_.all[static_cast<size_t>(id)].places();
    }
    counts.n_labels += peek(i, 1).n_labels();
  }
  return counts;
}

void PackedLoader::advance(int64_t n_rows) {
  const Place place = after(n_rows);
  epoch_ = place.epoch;
  position_ = place.row;
  drawn_ += n_rows;
}

LoaderState PackedLoader::state() const {
  return {{"identity", fmt::format("{:016x}", identity_)},
          {"tokens", std::to_string(stream_.n_tokens())},
          {"seq", std::to_string(options_.seq)},
          {"order", options_.shuffles ? "shuffled" : "sequential"},
          {"rows", options_.packing == Packing::single ? "single" : "first_fit"},
          {"too_long", std::string(enum_name(options_.too_long))},
          {"boundaries", options_.tells_starts ? "isolate" : "ignore"},
          {"seed", std::to_string(options_.seed)},
          {"epoch", std::to_string(epoch_)},
          {"position", std::to_string(position_)},
          {"drawn", std::to_string(drawn_)}};
}

std::string PackedLoader::description() const {
  const PackReport& report = pieces_.report;
  std::string text =
      fmt::format("{} documents in {} rows of {}, {:.1f} % padding", report.n_documents,
                  report.n_rows, options_.seq, 100 * report.padding_share(options_.seq));
  if (report.n_too_long > 0) {
    text += fmt::format("; {} do not fit ({}: {} tokens lost)", report.n_too_long,
                        enum_name(options_.too_long), report.n_lost_tokens);
  }
  if (report.n_without_labels > 0) {
    text += fmt::format("; {} hold nothing to train", report.n_without_labels);
  }
  return text;
}

void PackedLoader::restore(const LoaderState& state) {
  expect_same_source(state, this->state(),
                     {"tokens", "seq", "order", "rows", "too_long", "boundaries", "seed"});
  constexpr int64_t kMost = int64_t{1} << 62;
  const int64_t drawn = state_number(state, "drawn", kMost);
  const int64_t epoch = state_number(state, "epoch", drawn + 1);  // an epoch has a row at least
  position_ = state_number(state, "position", rows_of(epoch).n_rows());
  epoch_ = epoch;
  drawn_ = drawn;
}

PackedEval::PackedEval(TokenStream stream, PackOptions options, int64_t max_tokens)
    : stream_(std::move(stream)), options_(options) {
  options_.shuffles = false;
  pieces_ = find_pieces(stream_, options_);
  int64_t n_tokens = 0;
  size_t n = 0;
  while (n < pieces_.all.size() && n_tokens < max_tokens) n_tokens += pieces_.all[n++].n;
  pieces_.all.resize(n);
  rows_ = pack_epoch(pieces_, options_, 0);
}

Batch PackedEval::at(int64_t first_row, int64_t batch) const {
  Batch result = empty_batch(batch, options_.seq, options_.tells_starts);
  for (int64_t i = 0; i < batch && first_row + i < n_rows(); ++i) {
    write_row(stream_, pieces_, rows_.row(first_row + i), i, result);
  }
  return result;
}

}  // namespace octet
