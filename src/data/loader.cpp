#include "data/loader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/integer.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace octet {
namespace {

constexpr uint64_t kRandomStream = name_hash("data.random_windows");

Batch empty_batch(int64_t batch, int64_t seq) {
  const auto n = static_cast<size_t>(batch * seq);
  return {batch, seq, std::vector<int32_t>(n, 0), std::vector<int32_t>(n, kIgnoredLabel)};
}

// Fills one row from stream position `first`; what lies past the end stays as it is.
void fill_row(const TokenStream& stream, DocumentBoundaries boundaries, int64_t first,
              std::span<int32_t> tokens, std::span<int32_t> labels) {
  const int64_t n_left = stream.n_tokens() - first;
  const auto n =
      static_cast<size_t>(std::min<int64_t>(n_left, static_cast<int64_t>(tokens.size()) + 1));
  std::vector<int32_t> window(n);
  std::vector<uint8_t> starts(n);
  stream.read(first, window, starts);
  std::copy_n(window.begin(), std::min(n, tokens.size()), tokens.begin());
  for (size_t i = 0; i + 1 < n; ++i) {
    const bool is_masked = boundaries == DocumentBoundaries::mask_labels && starts[i + 1] != 0;
    labels[i] = is_masked ? kIgnoredLabel : window[i + 1];
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

std::string_view boundaries_name(DocumentBoundaries boundaries) {
  return boundaries == DocumentBoundaries::ignore ? "ignore" : "mask_labels";
}

}  // namespace

int64_t Batch::n_labels() const {
  return std::count_if(labels.begin(), labels.end(),
                       [](int32_t id) { return id != kIgnoredLabel; });
}

Loader::Loader(TokenStream stream, const LoaderOptions& options)
    : stream_(std::move(stream)), options_(options) {
  CHECK(options.seq >= 1);
  if (stream_.n_tokens() < 2) {
    throw Error(ErrorCode::bad_data, "[data] expected a stream of at least 2 tokens, got {}",
                stream_.n_tokens());
  }
  n_windows_ = (stream_.n_tokens() - 2) / options_.seq + 1;
  identity_ = stream_.identity();  // now: a state can be saved when the data cannot be read
}

int64_t Loader::window_start(int64_t drawn) const {
  const int64_t index = drawn % n_windows_;
  switch (options_.order) {
    case WindowOrder::sequential:
      return index * options_.seq;
    case WindowOrder::shuffled: {
      const auto pass = static_cast<uint64_t>(drawn / n_windows_);
      return Permutation(n_windows_, options_.seed, pass)(index) * options_.seq;
    }
    case WindowOrder::random:
      break;
  }
  // The high half of a 64 x 64-bit product is uniform over the starts, to within 2^-20 for a
  // trillion tokens.
  const int64_t n_starts = std::max<int64_t>(1, stream_.n_tokens() - options_.seq);
  const PhiloxKey key{static_cast<uint32_t>(options_.seed),
                      static_cast<uint32_t>(options_.seed >> 32)};
  const PhiloxBlock block = philox(key, static_cast<uint64_t>(drawn), kRandomStream);
  const uint64_t word = static_cast<uint64_t>(block.word[1]) << 32 | block.word[0];
  const auto product = static_cast<unsigned __int128>(word) * static_cast<uint64_t>(n_starts);
  return static_cast<int64_t>(product >> 64);
}

Batch Loader::next(int64_t batch) {
  Batch result = peek(0, batch);
  advance(batch);  // after the reads: a failed read changes nothing
  return result;
}

int64_t Loader::count_labels(int64_t n_windows) const {
  int64_t n_labels = 0;
  for (int64_t i = 0; i < n_windows; ++i) {
    if (options_.boundaries == DocumentBoundaries::mask_labels) {
      n_labels += peek(i, 1).n_labels();
    } else {
      n_labels += std::min(options_.seq, stream_.n_tokens() - 1 - window_start(drawn_ + i));
    }
  }
  return n_labels;
}

Batch Loader::peek(int64_t skip, int64_t batch) const {
  CHECK(skip >= 0 && batch >= 1);
  Batch result = empty_batch(batch, options_.seq);
  const auto seq = static_cast<size_t>(options_.seq);
  for (size_t row = 0; row < static_cast<size_t>(batch); ++row) {
    fill_row(stream_, options_.boundaries, window_start(drawn_ + skip + static_cast<int64_t>(row)),
             std::span(result.tokens).subspan(row * seq, seq),
             std::span(result.labels).subspan(row * seq, seq));
  }
  return result;
}

std::map<std::string, std::string> Loader::state() const {
  return {{"identity", fmt::format("{:016x}", identity_)},
          {"tokens", std::to_string(stream_.n_tokens())},
          {"seq", std::to_string(options_.seq)},
          {"order", std::string(order_name(options_.order))},
          {"boundaries", std::string(boundaries_name(options_.boundaries))},
          {"seed", std::to_string(options_.seed)},
          {"epoch", std::to_string(epoch())},
          {"position", std::to_string(drawn_ % n_windows_)}};
}

void Loader::restore(const std::map<std::string, std::string>& state) {
  const auto get = [&](const std::string& key) -> const std::string& {
    const auto it = state.find(key);
    if (it == state.end())
      throw Error(ErrorCode::bad_data, "[data] loader state: expected '{}', got none", key);
    return it->second;
  };
  const auto number = [&](const std::string& key, int64_t bound) {
    const std::string& text = get(key);
    int64_t value = -1;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < 0 ||
        value >= bound) {
      throw Error(ErrorCode::bad_data, "[data] loader state: '{}' must be from 0 to {}, got '{}'",
                  key, bound - 1, text);
    }
    return value;
  };
  const auto now = this->state();
  if (get("identity") != now.at("identity")) {
    throw Error(ErrorCode::bad_data,
                "[data] the training data changed: expected {} tokens of identity {}, got {} of {}",
                get("tokens"), get("identity"), now.at("tokens"), now.at("identity"));
  }
  for (const char* key : {"tokens", "seq", "order", "boundaries", "seed"}) {
    if (get(key) != now.at(key)) {
      throw Error(ErrorCode::bad_data,
                  "[data] '{}' must stay as in the checkpoint: expected {}, got {}", key, get(key),
                  now.at(key));
    }
  }
  const int64_t epoch = number("epoch", INT64_MAX / n_windows_);
  drawn_ = epoch * n_windows_ + number("position", n_windows_);
}

EvalWindows::EvalWindows(TokenStream stream, int64_t seq, int64_t max_labels)
    : stream_(std::move(stream)),
      seq_(seq),
      n_labels_(std::clamp<int64_t>(stream_.n_tokens() - 1, 0, max_labels)) {
  CHECK(seq >= 1 && max_labels >= 0);
}

int64_t EvalWindows::n_windows() const {
  return ceil_div(n_labels_, seq_);
}

Batch EvalWindows::at(int64_t first_window, int64_t batch) const {
  CHECK(first_window >= 0 && batch >= 1);
  Batch result = empty_batch(batch, seq_);
  const auto seq = static_cast<size_t>(seq_);
  for (size_t row = 0; row < static_cast<size_t>(batch); ++row) {
    const int64_t first = (first_window + static_cast<int64_t>(row)) * seq_;
    if (first >= n_labels_) break;
    const auto n = static_cast<size_t>(std::min(seq_, n_labels_ - first));
    fill_row(stream_, DocumentBoundaries::ignore, first,
             std::span(result.tokens).subspan(row * seq, n),
             std::span(result.labels).subspan(row * seq, n));
  }
  return result;
}

}  // namespace octet
