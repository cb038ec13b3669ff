#include "infer/batch_inputs.h"

#include <algorithm>

#include "base/error.h"

namespace octet {

void write_batch(BoundPlan& function, const Batch& batch, float inv_n) {
  const auto n_bytes = static_cast<int64_t>(batch.tokens.size() * sizeof(int32_t));
  function.write_input("tokens", batch.tokens.data(), n_bytes);
  if (function.has_input("positions")) {
    std::vector<int32_t> positions(batch.tokens.size());
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto column = static_cast<int32_t>(i % static_cast<size_t>(batch.seq));
      positions[i] = batch.doc_starts.empty() ? column : column - batch.doc_starts[i];
    }
    function.write_input("positions", positions.data(), n_bytes);
  }
  if (function.has_input("doc_starts")) {
    const std::vector<int32_t> whole(batch.doc_starts.empty() ? batch.tokens.size() : 0);
    const std::vector<int32_t>& starts = batch.doc_starts.empty() ? whole : batch.doc_starts;
    function.write_input("doc_starts", starts.data(), n_bytes);
  }
  if (function.has_input("labels")) {
    function.write_input("labels", batch.labels.data(), n_bytes);
  }
  if (function.has_input("inv_n")) function.write_input("inv_n", &inv_n, sizeof(inv_n));
}

Batch padded_row(std::span<const int32_t> tokens, int64_t seq) {
  const auto n = static_cast<size_t>(seq);
  CHECK(tokens.size() <= n);
  Batch batch{1, seq, std::vector<int32_t>(n, 0), std::vector<int32_t>(n, kIgnoredLabel)};
  std::copy(tokens.begin(), tokens.end(), batch.tokens.begin());
  return batch;
}

}  // namespace octet
