// Faults and delays that the environment asks for (processes.h).
#pragma once

#include <cstdint>

namespace emulator {

void delay_for_jitter(int device);
// Whether this device's wait of that number returns at once, by a fault.
bool skips_wait(int device, int64_t barrier);
// Where another device skips the wait there: long enough for it to do so.
void delay_before_barrier(int device, int64_t barrier);

}  // namespace emulator
