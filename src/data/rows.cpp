#include "data/rows.h"

#include <algorithm>
#include <cmath>

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

}  // namespace octet
