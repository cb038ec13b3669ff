// How a model folder's 8-bit weights are scaled, and how the inputs of its linears are quantized at
// inference: config.json's quantization_config, in the layouts of the Hugging Face ecosystem and in
// Octet's own.
//   quant_method fp8                  NAME.weight in E4M3 beside NAME.weight_scale_inv, a scale a
//                                     block of weight_block_size, or NAME.weight_scale, one scale
//   quant_method compressed-tensors   NAME.weight in E4M3 (float-quantized, mxfp8-quantized) or
//                                     INT8 (int-quantized; pack-quantized: four in an I32 of
//                                     NAME.weight_packed) beside NAME.weight_scale: one, one a row
//                                     (strategy channel), one a group of a row, or one a block
//   quant_method octet                any 8-bit format of Octet's and any grid of scales:
//                                     docs/formats/quantized.md
// Scales are multipliers: weight = q * scale; U8 ones are E8M0. Other methods and formats are
// refused by name. Source: compressed-tensors 0.20 (which group a module is of), transformers 5.24.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/files.h"
#include "base/named_enum.h"
#include "formats/dtype.h"

namespace octet {

class Regex;

struct BlockShape {
  int64_t rows = 128, cols = 128;
  bool operator==(const BlockShape&) const = default;
};

// Scaling of the input of a linear: left as it is; by NAME.input_scale; by the scale of the tensor,
// a token's row, or a group of it at hand.
enum class ActivationScaling : uint8_t { none, fixed, tensor, token, group };
constexpr auto value_names(ActivationScaling) {
  return name_list("none", "fixed", "tensor", "token", "group");
}

struct ActivationScheme {
  ActivationScaling scaling = ActivationScaling::none;
  Dtype dtype = Dtype::e4m3;
  int64_t group = 0;   // of ActivationScaling::group
  bool power = false;  // scales that are powers of two
  bool operator==(const ActivationScheme&) const = default;
};

// A module by its name, modules whose names begin as a regular expression says ("re:..."), or by a
// class of theirs: "Linear", "Module".
class ModulePattern {
 public:
  enum class Kind : uint8_t { name, expression, linears };

  // Throws Error{invalid_argument} where it is no expression.
  explicit ModulePattern(std::string text);
  bool matches(std::string_view module) const;
  // A name goes before expressions, and those before classes, each in alphabetical order.
  bool is_before(const ModulePattern& other) const {
    return std::tie(kind_, text_) < std::tie(other.kind_, other.text_);
  }

 private:
  Kind kind_ = Kind::name;
  std::string text_;
  std::shared_ptr<const Regex> regex_;  // shared: patterns are copied
};

// Linears that are quantized alike.
struct QuantizationGroup {
  std::vector<ModulePattern> targets;
  BlockShape block;  // of scales that are a matrix of more than one column
  ActivationScheme activations;
  std::optional<Dtype> weights = {};  // what its matrices are in, where the file says so
};

struct QuantizationConfig {
  std::vector<QuantizationGroup> groups;  // at least one
  std::vector<ModulePattern> ignored = {};
  bool others_are_first = true;  // what no target names is of the first group; false: of none
  // The weights are not in 8 bits, and scales beside them unused: the inputs are quantized still.
  bool is_decompressed = false;
  bool has_power_blocks = false;               // fp8: scale_fmt ue8m0
  std::vector<std::string> unknown_keys = {};  // "config_groups.group_0.weights.KEY"
  // Octet's own: the operands of residual sums, by the pass's names, and their fixed scales.
  Dtype residual = Dtype::e4m3;
  std::map<std::string, float> residual_scales = {};

  // The group of a linear, by all names that its module has ("model.layers.0.mlp.up_proj", of which
  // any may match): that with the target that goes before all others that match, the last of groups
  // with one target. Null: it is ignored, or of none.
  const QuantizationGroup* group_of(std::span<const std::string> names) const;
};

// Keys of any quant_method, and of fp8's, that change nothing, proved in
// docs/results/neutral_keys.csv.
std::vector<std::string_view> neutral_quantization_keys();
std::vector<std::string_view> neutral_fp8_keys();

// Nothing where the folder's weights are not quantized. Throws Error{bad_data}, "[config.json]
// PATH: 'quantization_config.KEY': expected ..., got ...".
std::optional<QuantizationConfig> parse_quantization_config(const std::string& text,
                                                            const std::string& where);
// The configuration of the config.json in a model folder, where there is one.
std::optional<QuantizationConfig> read_quantization_config(const Files& files,
                                                           const std::string& folder);

// The names under which a weight's scale is looked for, and its input's.
std::vector<std::string> scale_names(std::string_view weight);
std::vector<std::string> input_scale_names(std::string_view weight);
// Scales and what else stands beside a quantized weight, and is no parameter.
bool is_quantization_tensor(std::string_view name);
// Scales among them that say nothing of weights or inputs: of the KV cache, and of outputs.
bool is_unused_scale(std::string_view name);

// The block that one scale of a matrix [rows, cols] covers. `shape` is the scales': [] or [1],
// [rows], [rows, 1], or [ceil(rows / block), ceil(cols / block)]. Nothing where none of these.
std::optional<BlockShape> scaled_block(const std::vector<int64_t>& weight,
                                       const std::vector<int64_t>& scales, const BlockShape& block);

}  // namespace octet
