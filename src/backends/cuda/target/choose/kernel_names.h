// The kernels that a launch is made of, in order, as profilers name them: KernelChoice::launches.
#pragma once

#include <string_view>
#include <vector>

namespace octet::cuda {

using KernelNames = std::vector<std::string_view>;

// Launches of one kernel that make n things, so many of them each.
constexpr int64_t launches_for(int64_t n, int64_t of_one_launch) {
  return (n + of_one_launch - 1) / of_one_launch;
}
inline KernelNames repeated(std::string_view name, int64_t n) {
  return KernelNames(static_cast<size_t>(n), name);
}

}  // namespace octet::cuda
