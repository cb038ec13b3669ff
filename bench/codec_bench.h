// Rates of the bulk codecs on one thread, on a 32 KiB block of f32 (in cache) and streaming.
#pragma once

#include <vector>

#include "bench/bench_row.h"

namespace octet {

// value: GB/s of f32 read (encode) or written (decode); ratio: against the scalar path; share:
// bytes moved a second against a copy's. Runs for some seconds. Floors hold with AVX-512: 12 in
// cache and 5 streaming; elsewhere 0.
std::vector<BenchRow> bench_codec();

}  // namespace octet
