// The table of quantized types in docs/numerics.md, made by asking both back ends for kernels:
// `octet docs types`.
#pragma once

#include <string>
#include <vector>

namespace octet {

// How an operand of a quantized type is read, on a CPU and on a Hopper GPU: "kernel" where the op
// has one that reads it, "decoded" where it is dequantized before, or why it is refused.
struct TypeUse {
  std::string cpu, gpu;
};
struct QuantizedTypeRow {
  std::string type;  // "e4m3:1x16"
  TypeUse gemm, norm, activation, moment, dequantize;
};

// Formats x granularities.
std::vector<QuantizedTypeRow> quantized_types();
std::string quantized_types_markdown();

}  // namespace octet
