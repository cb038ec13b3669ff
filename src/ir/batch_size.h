// The size of a call of a model: how many rows of how many tokens, and what attention sees of them.
#pragma once

#include <compare>
#include <cstdint>

namespace octet {

// Whether the documents of a row see each other; isolated: attention has the operand doc_starts.
enum class RowDocuments : uint8_t { joined, isolated };

// cache: how many positions the KV cache holds that is read and written; 0: there is none.
struct BatchSize {
  int64_t batch = 1, seq = 1;
  RowDocuments documents = RowDocuments::joined;
  int64_t cache = 0;
  auto operator<=>(const BatchSize&) const = default;
};

}  // namespace octet
