// The size of a call of a model: how many rows of how many tokens, what attention sees of them, and
// what norms over all of the batch go by.
#pragma once

#include <compare>
#include <cstdint>

namespace octet {

// Documents of a row: joined, they see each other; isolated: attention has the operand doc_starts.
enum class RowDocuments : uint8_t { joined, isolated };

// Values that a norm over the batch subtracts and divides by: what training gathered before, so
// that a row means the same in every batch, or, in training, this batch's own, which is gathered.
enum class BatchStatistics : uint8_t { gathered, own };

// cache: how many positions the KV cache holds that is read and written; 0: there is none. source:
// tokens that sources are padded to; 0: as many as the model says.
struct BatchSize {
  int64_t batch = 1, seq = 1;
  RowDocuments documents = RowDocuments::joined;
  int64_t cache = 0;
  BatchStatistics statistics = BatchStatistics::gathered;
  int64_t source = 0;
  auto operator<=>(const BatchSize&) const = default;
};

}  // namespace octet
