// Post-training quantization at inference: the inputs of linears, and of residual sums, become what
// eight bits hold of them. Typed -> Typed, of a graph that runs forward; weights are not touched
// (their quantized data are dequantized when they are loaded).
//
//   fixed scale     dequantize(quantize(x, scale)), one scale for the tensor
//   no scale        the same with the scale of the tensor at hand (group 0), or fake_quantize with
//                   one for each group of a row
// Source: Micikevicius et al. 2022, section 4 (both operands of each GEMM; figure 2: sums too).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace octet {

inline constexpr int64_t kWholeRow = int64_t{1} << 40;  // a group that is a token's row

struct ActivationQuantizer {
  Dtype dtype = Dtype::e4m3;
  double target = 448;              // amax becomes this, where the scale is not fixed
  std::optional<float> scale = {};  // fixed
  int64_t group = 0;                // of a row; 0: the tensor is one
  bool power = false;               // scales of groups are powers of two
  bool operator==(const ActivationQuantizer&) const = default;
};

struct FakeQuantizeInputs {
  std::map<std::string, ActivationQuantizer> linears = {};  // by the name of the weight
  // By residual_name(): both operands of a sum.
  std::map<std::string, ActivationQuantizer> residuals = {};
  bool operator==(const FakeQuantizeInputs&) const = default;
  bool empty() const { return linears.empty() && residuals.empty(); }
};

// "layers.3.residual.1.a": of the sums of layer "layers.3" the second, its first operand.
std::string residual_name(std::string_view layer, int index, char operand);
// True if the node adds to the residual stream of a layer.
bool is_residual_sum(const Node& node);

// Throws Error{invalid_argument} where a name is no linear or sum of the graph.
Graph fake_quantize_inputs(const Graph& graph, const FakeQuantizeInputs& options);

}  // namespace octet
