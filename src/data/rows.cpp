#include "data/rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace octet {

Batch empty_batch(int64_t batch, int64_t seq, bool tells_starts) {
  Batch result{.batch = batch, .seq = seq};
  result.lengths.assign(static_cast<size_t>(batch), seq);
  result.add(tokens_input());
  result.add(token_labels_input());
  if (tells_starts) result.add(doc_starts_input());
  return result;
}

int64_t filled_row(int64_t row, int64_t first_row, int64_t n_rows) {
  if (row < n_rows) return row;
  return first_row < n_rows ? first_row + (row - n_rows) % (n_rows - first_row) : row % n_rows;
}

void mask_row(Batch& batch, int64_t row) {
  batch.fillers.push_back(row);
  for (HostTensor& tensor : batch.tensors) {
    if (tensor.spec.fill != Fill::ignored) continue;
    const int64_t n_rows = tensor.spec.per == Per::sample ? batch.rows_per_sample : 1;
    const auto mask = [&](auto& values, auto ignored) {
      const int64_t n = std::ssize(values) * n_rows / batch.batch;
      std::fill_n(values.begin() + row / n_rows * n, n, ignored);
    };
    if (auto* ints = std::get_if<std::vector<int32_t>>(&tensor.values)) mask(*ints, kIgnoredLabel);
    if (auto* reals = std::get_if<std::vector<float>>(&tensor.values)) mask(*reals, NAN);
  }
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
    const std::string unit = now.contains("samples") ? "samples" : "tokens";
    throw Error(ErrorCode::bad_data,
                "[data] the training data changed: expected {} {} of identity {}, got {} of {}",
                state_text(state, unit), unit, state_text(state, "identity"), now.at(unit),
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
