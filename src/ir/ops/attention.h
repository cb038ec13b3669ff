// The operands of attention and its gradient where rows hold several documents: those without, and
// doc_starts.
#pragma once

#include "ir/ops/slots.h"

namespace octet {

// Whether the documents of a row see each other.
enum class RowDocuments : uint8_t { joined, isolated };

OCTET_SLOTS(DocumentAttention, (q, k, v, doc_starts), (o, lse));
OCTET_SLOTS(DocumentAttentionGrad, (dout, q, k, v, o, lse, doc_starts), (dq, dk, dv));

}  // namespace octet
