// Scales of states that are stored in FP16 (StateUse::fixed_scale): what optimizer, first values
// and exports agree on.
#pragma once

#include "base/philox.h"

namespace octet {

// The stream of the words that round a parameter's second moment, name_hash of "<parameter>:v", by
// that of its update, name_hash of "<parameter>".
inline int64_t stream_of_v(int64_t update) {
  return static_cast<int64_t>(
      continue_hash(continue_hash(static_cast<uint64_t>(update), ':'), 'v'));
}

// Divisor of masters as long as no scale is kept of them: the weights that a model starts with have
// all of FP16's bits between 2^-22 and 2^8.
inline constexpr float kFirstMasterScale = 0x1p-8f;

}  // namespace octet
