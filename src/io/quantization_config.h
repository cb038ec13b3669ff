// How a model folder's 8-bit weights are scaled: config.json's quantization_config, in the layouts
// of the Hugging Face ecosystem.
//   quant_method fp8                     NAME.weight in E4M3 beside NAME.weight_scale_inv, a scale
//   a
//                                        block of weight_block_size, or NAME.weight_scale, one
//                                        scale
//   quant_method compressed-tensors,     NAME.weight in E4M3 beside NAME.weight_scale: one, one a
//   row format float-quantized               (strategy channel), or one a block (block_structure)
// All are multipliers: weight = q * scale. Other methods and formats are refused by name; how
// activations were quantized for inference changes no weight, and is not read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace octet {

struct BlockShape {
  int64_t rows = 128, cols = 128;
  bool operator==(const BlockShape&) const = default;
};

struct QuantizationConfig {
  BlockShape block;  // of scales that are a matrix of more than one column
};

// Nothing where the folder's weights are not quantized. Throws Error{bad_data}, "[config.json]
// PATH: 'quantization_config.KEY': expected ..., got ...".
std::optional<QuantizationConfig> parse_quantization_config(const std::string& text,
                                                            const std::string& where);
// Of the config.json in a model folder, where there is one.
std::optional<QuantizationConfig> read_quantization_config(const Files& files,
                                                           const std::string& folder);

// The names under which a weight's scale is looked for.
std::vector<std::string> scale_names(std::string_view weight);
// Scales and what else stands beside a quantized weight, and is no parameter.
bool is_quantization_tensor(std::string_view name);

// What one scale of a matrix [rows, cols] covers. `shape` is the scales': [] or [1], [rows],
// [rows, 1], or [ceil(rows / block), ceil(cols / block)]. Nothing where it is none of these.
std::optional<BlockShape> scaled_block(const std::vector<int64_t>& weight,
                                       const std::vector<int64_t>& scales, const BlockShape& block);

}  // namespace octet
