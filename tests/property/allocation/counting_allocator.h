// Counts large allocations of the process while it is switched on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octet::counting {

inline constexpr std::size_t kLarge = 64 * 1024;

void begin();
// Allocations above kLarge since begin(): malloc and its relatives, operator new among them, and
// anonymous maps.
int64_t end();

}  // namespace octet::counting
