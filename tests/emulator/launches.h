// The kernels that the module launches, by the names of their functions: what a plan says of them
// is compared with it (tests/gpu/parity/launches_test.cpp).
#pragma once

#include <string_view>

namespace emulator {

// Name of the function at a kernel's address, without namespaces and template arguments; empty
// while nothing is noted.
std::string_view name_of(const void* kernel);
// One launch, in order, where launches are noted.
void note_launch(std::string_view name);

}  // namespace emulator
