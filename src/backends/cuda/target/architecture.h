// Features of generations of GPUs, where kernels are chosen. A module holds code for those that it
// was built for (OCTET_CUDA_ARCH); all else is the same on each of them.
#pragma once

#include <string_view>

namespace octet::cuda {

struct Architecture {
  int capability;  // 10 major + minor: of this row and of those up to the next
  std::string_view name;
  bool fp8_products;  // FP8 tensor cores, both factors K-major; else decoded to BF16, exactly
  bool fp8_blocks;    // products with scales of 128 and 128 x 128 in cuBLASLt; else decoded
};

inline constexpr Architecture kArchitectures[] = {
    {80, "Ampere", false, false},        {89, "Ada", true, false},
    {90, "Hopper", true, true},          {100, "Blackwell", true, false},
    {120, "Blackwell RTX", true, false},
};
inline constexpr int kPlannedCapability = 90;  // where there is no GPU to ask

// nullptr below the first row.
constexpr const Architecture* find_architecture(int capability) {
  const Architecture* found = nullptr;
  for (const Architecture& row : kArchitectures) {
    if (row.capability <= capability) found = &row;
  }
  return found;
}

}  // namespace octet::cuda
