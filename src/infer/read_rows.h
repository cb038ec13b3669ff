// Rows of a function's results, on the host.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "runtime/executor.h"

namespace octet {

struct OutputRows {
  int64_t first = 0, n = 0;
};

// Rows of an output, a matrix in high precision, of a function that ran on this device; in f32.
std::vector<float> read_rows(Device& device, const BoundPlan& plan, std::string_view output,
                             OutputRows rows);

}  // namespace octet
