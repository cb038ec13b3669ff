// Memory of the process, as the operating system counts it.
#pragma once

#include <cstdint>

namespace octet {

// The most memory that was resident at one time since the start or the last reset, bytes.
int64_t peak_resident_bytes();

// Begins a new peak. Where the system does not offer it, the peak since the start goes on.
void reset_peak_resident_bytes();

}  // namespace octet
