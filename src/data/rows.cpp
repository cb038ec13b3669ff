#include "data/rows.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace octet {

int64_t Batch::n_labels() const {
  return std::count_if(labels.begin(), labels.end(),
                       [](int32_t id) { return id != kIgnoredLabel; });
}

Batch empty_batch(int64_t batch, int64_t seq, bool tells_starts) {
  const auto n = static_cast<size_t>(batch * seq);
  return {batch, seq, std::vector<int32_t>(n, 0), std::vector<int32_t>(n, kIgnoredLabel),
          std::vector<int32_t>(tells_starts ? n : 0, 0)};
}

int64_t filled_row(int64_t row, int64_t first_row, int64_t n_rows) {
  if (row < n_rows) return row;
  return first_row < n_rows ? first_row + (row - n_rows) % (n_rows - first_row) : row % n_rows;
}

void mask_row(Batch& batch, int64_t row) {
  std::fill_n(batch.labels.begin() + row * batch.seq, batch.seq, kIgnoredLabel);
}

const std::string& state_text(const LoaderState& state, const std::string& key) {
  const auto it = state.find(key);
  if (it == state.end())
    throw Error(ErrorCode::bad_data, "[data] loader state: expected '{}', got none", key);
  return it->second;
}

int64_t state_number(const LoaderState& state, const std::string& key, int64_t bound) {
  const std::string& text = state_text(state, key);
  int64_t value = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < 0 ||
      value >= bound) {
    throw Error(ErrorCode::bad_data, "[data] loader state: '{}' must be from 0 to {}, got '{}'",
                key, bound - 1, text);
  }
  return value;
}

void expect_same_source(const LoaderState& state, const LoaderState& now,
                        const std::vector<std::string>& keys) {
  if (state_text(state, "identity") != now.at("identity")) {
    throw Error(ErrorCode::bad_data,
                "[data] the training data changed: expected {} tokens of identity {}, got {} of {}",
                state_text(state, "tokens"), state_text(state, "identity"), now.at("tokens"),
                now.at("identity"));
  }
  for (const std::string& key : keys) {
    if (!state.contains(key) && !now.contains(key)) continue;  // a key of some data alone
    if (!now.contains(key)) {
      throw Error(ErrorCode::bad_data,
                  "[data] '{}' must stay as in the checkpoint: expected {}, got "
                  "none",
                  key, state_text(state, key));
    }
    if (state_text(state, key) != now.at(key)) {
      throw Error(ErrorCode::bad_data,
                  "[data] '{}' must stay as in the checkpoint: expected {}, got {}", key,
                  state_text(state, key), now.at(key));
    }
  }
}

}  // namespace octet
