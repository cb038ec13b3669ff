#include "data/loader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/integer.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace octet {
namespace {

constexpr uint64_t kRandomStream = name_hash("data.random_windows");

// One row of a batch.
struct Row {
  std::span<int32_t> tokens, labels;
  int64_t& length;                     // in tokens
  std::span<int32_t> doc_starts = {};  // empty where they are not asked for
};

Row row_of(Batch& batch, size_t row, size_t n) {
  const auto seq = static_cast<size_t>(batch.seq), at = row * seq;
  Row result{std::span(batch.ints("tokens")).subspan(at, n),
             std::span(batch.ints("labels")).subspan(at, n), batch.lengths[row]};
  if (batch.find("doc_starts") != nullptr)
    result.doc_starts = std::span(batch.ints("doc_starts")).subspan(at, seq);
  return result;
}

// Fills one row from stream position `first`; what lies past the end stays as it is.
void fill_row(const TokenStream& stream, DocumentBoundaries boundaries, int64_t first,
              const Row& row) {
  const int64_t n_left = stream.n_tokens() - first;
  const auto n =
      static_cast<size_t>(std::min<int64_t>(n_left, static_cast<int64_t>(row.tokens.size()) + 1));
  std::vector<int32_t> window(n);
  std::vector<uint8_t> flags(n);
  stream.read(first, window, flags);
  const size_t n_held = std::min(n, row.tokens.size());
  std::copy_n(window.begin(), n_held, row.tokens.begin());
  row.length = static_cast<int64_t>(n_held);
  for (size_t i = 0; i + 1 < n; ++i) {
    const bool begins = (flags[i + 1] & kDocumentStart) != 0;
    const bool is_masked =
        (begins && boundaries != DocumentBoundaries::ignore) || (flags[i + 1] & kNotTrained) != 0;
    row.labels[i] = is_masked ? kIgnoredLabel : window[i + 1];
  }
  int32_t begin = 0;
  for (size_t i = 0; i < row.doc_starts.size(); ++i) {
    if (i < n && (flags[i] & kDocumentStart) != 0) begin = static_cast<int32_t>(i);
    row.doc_starts[i] = begin;
  }
}

std::string_view order_name(WindowOrder order) {
  switch (order) {
    case WindowOrder::sequential:
      return "sequential";
    case WindowOrder::shuffled:
      return "shuffled";
    case WindowOrder::random:
      return "random";
  }
  return "?";
}

// The windows of a pass; each is of the part that it begins in.
Mixture mixture_of(const TokenStream& stream, const LoaderOptions& options) {
  CHECK(options.seq >= 1);
  if (stream.n_tokens() < 2) {
    throw Error(ErrorCode::bad_data, "[data] expected a stream of at least 2 tokens, got {}",
                stream.n_tokens());
  }
  const int64_t n = (stream.n_tokens() - 2) / options.seq + 1;
  std::vector<int64_t> ends;
  for (const StreamPart& part : stream.parts())
    ends.push_back(std::min(ceil_div(part.end, options.seq), n));
  return Mixture(n, ends, stream.parts(),
                 {.shuffles = options.order == WindowOrder::shuffled, .seed = options.seed});
}

}  // namespace

Loader::Loader(TokenStream stream, const LoaderOptions& options)
    : stream_(std::move(stream)), options_(options), mixture_(mixture_of(stream_, options)) {
  n_windows_ = mixture_.n_items();
  identity_ = stream_.identity();  // now: a state can be saved when the data cannot be read
}

int64_t Loader::window_start(int64_t drawn) const {
  if (options_.order != WindowOrder::random) {
    const auto pass = static_cast<uint64_t>(drawn / n_windows_);
    return mixture_.item(pass, drawn % n_windows_) * options_.seq;
  }
  const int64_t n_starts = std::max<int64_t>(1, stream_.n_tokens() - options_.seq);
  return uniform_index(n_starts, options_.seed, kRandomStream, static_cast<uint64_t>(drawn));
}

Batch Loader::next(int64_t batch) {
  Batch result = peek(0, batch);
  advance(batch);  // after the reads: a failed read changes nothing
  return result;
}

RowCounts Loader::count(int64_t n_windows) const {
  int64_t n_labels = 0;
  for (int64_t i = 0; i < n_windows; ++i) {
    if (options_.boundaries != DocumentBoundaries::ignore) {
      n_labels += peek(i, 1).n_labels();
    } else {
      n_labels += std::min(options_.seq, stream_.n_tokens() - 1 - window_start(rows_consumed_ + i));
    }
  }
  const int64_t n_padded_tokens = n_windows * options_.seq;
  return {.items = {{"labels", n_labels}, {"rows", n_windows}, {"samples", n_windows}},
          .n_tokens = n_padded_tokens,
          .n_padded_tokens = n_padded_tokens};
}

Batch Loader::peek(int64_t skip, int64_t batch) const {
  CHECK(skip >= 0 && batch >= 1);
  Batch result =
      empty_batch(batch, options_.seq, options_.boundaries == DocumentBoundaries::isolate);
  const auto seq = static_cast<size_t>(options_.seq);
  for (size_t row = 0; row < static_cast<size_t>(batch); ++row) {
    fill_row(stream_, options_.boundaries,
             window_start(rows_consumed_ + skip + static_cast<int64_t>(row)),
             row_of(result, row, seq));
  }
  return result;
}

LoaderState Loader::state() const {
  LoaderState state = {{"identity", fmt::format("{:016x}", identity_)},
                       {"tokens", std::to_string(stream_.n_tokens())},
                       {"seq", std::to_string(options_.seq)},
                       {"order", std::string(order_name(options_.order))},
                       {"boundaries", std::string(enum_name(options_.boundaries))},
                       {"seed", std::to_string(options_.seed)},
                       {"epoch", std::to_string(epoch())},
                       {"position", std::to_string(rows_consumed_ % n_windows_)}};
  const std::string weights = weights_text(stream_.parts());
  if (!weights.empty()) state["weights"] = weights;
  return state;
}

void Loader::restore(const LoaderState& state) {
  expect_same_source(state, this->state(),
                     {"tokens", "seq", "order", "boundaries", "weights", "seed"});
  const int64_t epoch = state_number(state, "epoch", INT64_MAX / n_windows_);
  rows_consumed_ = epoch * n_windows_ + state_number(state, "position", n_windows_);
}

EvalWindows::EvalWindows(TokenStream stream, int64_t seq, int64_t max_labels,
                         DocumentBoundaries boundaries)
    : stream_(std::move(stream)),
      seq_(seq),
      n_labels_(std::clamp<int64_t>(stream_.n_tokens() - 1, 0, max_labels)),
      boundaries_(boundaries) {
  CHECK(seq >= 1 && max_labels >= 0);
}

int64_t EvalWindows::n_windows() const {
  return ceil_div(n_labels_, seq_);
}

Batch EvalWindows::at(int64_t first_window, int64_t batch) const {
  CHECK(first_window >= 0 && batch >= 1);
  Batch result = empty_batch(batch, seq_, boundaries_ == DocumentBoundaries::isolate);
  for (int64_t row = 0; row < batch && n_windows() > 0; ++row) {
    const int64_t window = filled_row(first_window + row, first_window, n_windows());
    const int64_t first = window * seq_;
    const auto n = static_cast<size_t>(std::min(seq_, n_labels_ - first));
    fill_row(stream_, boundaries_, first, row_of(result, static_cast<size_t>(row), n));
    if (window != first_window + row) mask_row(result, row);
  }
  return result;
}

}  // namespace octet
