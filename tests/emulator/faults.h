// Faults and delays that the environment asks for (processes.h).
#pragma once

#include <cstdint>

namespace emulator {

void delay_for_jitter(int device);
// True if this device's wait of that number returns at once, by a fault.
bool skips_wait(int device, int64_t barrier);
// The device that skips the wait there, where it is another one; -1: none does.
int device_that_skips(int device, int64_t barrier);
// True if a stream of this device that is asked has not ended, by a fault.
bool stream_hangs(int device);
// Long enough for it to go on.
void delay_for_fault();

// Parts that launches leave out from now on: nothing, all their blocks, or the last one; a product
// is one of tiles of 16 x 16. Of products alone: the last factors of each sum, promotion (sums of
// 8-bit floats are fast), and a bit of a's first code. octet_emulated_omit() sets it, and gives how
// many blocks have been left out since it was called last, or products been wrong.
enum class Omitted : int { none, all, last, last_factors, promotion, one_bit };
Omitted omitted();
void note_omitted(int64_t n_blocks);
int64_t omit(Omitted what);

}  // namespace emulator
