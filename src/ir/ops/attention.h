// How attention treats the documents of a row.
#pragma once

#include <cstdint>

namespace octet {

// Whether the documents of a row see each other; isolated: attention has the operand doc_starts.
enum class RowDocuments : uint8_t { joined, isolated };

}  // namespace octet
