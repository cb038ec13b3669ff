// Whose sums of products a GEMM has.
#pragma once

#include <cstdint>

#include "base/named_enum.h"

namespace octet {

// Whose sums a CPU makes of the products of quantized and 16-bit factors: its own, in f32, or those
// of Hopper's tensor cores (plan/tensor_gemm.h), slower.
enum class Arithmetic : uint8_t { own, hopper };
constexpr auto value_names(Arithmetic) {
  return name_list("own", "hopper");
}
// 10 major + minor; 0: no card's.
constexpr int capability_of(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::hopper ? 90 : 0;
}

}  // namespace octet
