// Storage of frozen weights: Typed -> Typed.
//
// Constants that are factors of the layers' GEMMs become 8-bit data with their scales, and are
// dequantized to the type that the recipe computes in, right before each GEMM that reads them
// (quantize_linears reads the data themselves where it asks for this format). Other constants stay
// as they are typed; with `bf16` all constants are BF16.
//   per tensor       data as the weight, scale "frozen_scale:<weight>" f32 []
//   blocks of 128    data as the weight, scales BF16 [rows, ceil(cols / 128)], equal in each 128
//   rows
// Data and scales are constants of the graph.
#pragma once

#include <string_view>

#include "base/named_enum.h"
#include "ir/graph.h"

namespace octet {

enum class FrozenFormat : uint8_t { as_computed, bf16, e4m3, e4m3_blocks, hif8 };
constexpr auto value_names(FrozenFormat) {
  return name_list("auto", "bf16", "e4m3", "e4m3/128x128", "hif8");
}
inline constexpr int64_t kFrozenBlock = 128;

constexpr bool is_quantized(FrozenFormat format) {
  return format >= FrozenFormat::e4m3;
}
constexpr Dtype frozen_dtype(FrozenFormat format) {
  return format == FrozenFormat::hif8 ? Dtype::hif8 : Dtype::e4m3;
}
std::string frozen_scale_name(std::string_view weight);

Graph store_frozen(const Graph& typed, FrozenFormat format);

// The frozen weight that a value is: a constant, or what is dequantized of one; else nullptr.
const GraphInput* frozen_weight(const Graph& graph, ValueId id);

}  // namespace octet
