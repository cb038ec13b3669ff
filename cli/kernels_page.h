// docs/kernels.md: the rows of kernels of both back ends, made by planning every recipe:
// `octet docs kernels`.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace octet {

// A row, and what the plans say of the nodes that take it.
struct KernelRowUse {
  std::string backend, op, row;
  std::string speed;                      // "", "generic", "reference"
  std::map<std::string, int> types = {};  // "bf16 x bf16 -> bf16, f32": recipes that have it
  double bytes = 0;                       // fewest moved, an element of the largest tensor; 0: no
                                          // recipe takes the row
  double flops = 0;                       // beside them, a byte moved
};

// By back end and op.
std::vector<KernelRowUse> kernel_row_uses();
std::string kernels_markdown();

}  // namespace octet
