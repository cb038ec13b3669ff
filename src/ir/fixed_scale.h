// Scales of states that are stored in FP16 (StateUse::fixed_scale): what optimizer, first values
// and exports agree on.
#pragma once

namespace octet {

// What masters are divided by as long as no scale is kept of them: the weights that a model starts
// with have all of FP16's bits between 2^-22 and 2^8.
inline constexpr float kFirstMasterScale = 0x1p-8f;

}  // namespace octet
