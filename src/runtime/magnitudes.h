// Counts over all elements of a tensor in the host's memory, on the threads of a pool: each is the
// same for any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "base/thread_pool.h"
#include "formats/dtype.h"

namespace octet {

enum class Infinities : uint8_t { counted, left_out };

// max |x| of the elements of a format of 8, 16 or 32 bits; NaN is left out. 0 of none.
double largest_magnitude(ThreadPool& pool, Dtype dtype, std::span<const std::byte> bytes,
                         Infinities infinities);

// How many elements of 8 bits have each code.
using CodeCounts = std::array<int64_t, 256>;
CodeCounts code_counts(ThreadPool& pool, std::span<const std::byte> codes);

// The largest of what `of` gives for [first, end) of consecutive pieces of [0, n); 0 where n is 0.
double largest_of_pieces(ThreadPool& pool, size_t n, size_t piece,
                         const std::function<double(size_t first, size_t end)>& of);

}  // namespace octet
