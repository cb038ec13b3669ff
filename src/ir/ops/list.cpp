#include "ir/ops/list.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ir/ops/common.h"

namespace octet {
namespace {

struct Entry {
  OpCode code;
  const OpDef* def;
};

constexpr std::array<Entry, kOpCount> kOps = {{
    {OpCode::neg, &ops::kNeg},
    {OpCode::abs, &ops::kAbs},
    {OpCode::sign, &ops::kSign},
    {OpCode::exp, &ops::kExp},
    {OpCode::log, &ops::kLog},
    {OpCode::sqrt, &ops::kSqrt},
    {OpCode::rsqrt, &ops::kRsqrt},
    {OpCode::square, &ops::kSquare},
    {OpCode::tanh, &ops::kTanh},
    {OpCode::erf, &ops::kErf},
    {OpCode::logistic, &ops::kLogistic},
    {OpCode::sin, &ops::kSin},
    {OpCode::cos, &ops::kCos},
    {OpCode::add, &ops::kAdd},
    {OpCode::sub, &ops::kSub},
    {OpCode::mul, &ops::kMul},
    {OpCode::div, &ops::kDiv},
    {OpCode::maximum, &ops::kMaximum},
    {OpCode::minimum, &ops::kMinimum},
    {OpCode::less, &ops::kLess},
    {OpCode::equal, &ops::kEqual},
    {OpCode::select, &ops::kSelect},
    {OpCode::cast, &ops::kCast},
    {OpCode::stop_gradient, &ops::kStopGradient},
    {OpCode::rescale, &ops::kRescale},
    {OpCode::set_scale, &ops::kSetScale},
    {OpCode::rebalance, &ops::kRebalance},
    {OpCode::dynamic_rescale, &ops::kDynamicRescale},
    {OpCode::delayed_rescale, &ops::kDelayedRescale},
    {OpCode::custom_scale, &ops::kCustomScale},
    {OpCode::cast_in, &ops::kCastIn},
    {OpCode::data_scale, &ops::kDataScale},
    {OpCode::power_of_two, &ops::kPowerOfTwo},
    {OpCode::store_scaled, &ops::kStoreScaled},
    {OpCode::fill, &ops::kFill},
    {OpCode::iota, &ops::kIota},
    {OpCode::broadcast, &ops::kBroadcast},
    {OpCode::reshape, &ops::kReshape},
    {OpCode::transpose, &ops::kTranspose},
    {OpCode::slice, &ops::kSlice},
    {OpCode::pad, &ops::kPad},
    {OpCode::concatenate, &ops::kConcatenate},
    {OpCode::reduce_sum, &ops::kReduceSum},
    {OpCode::reduce_max, &ops::kReduceMax},
    {OpCode::argmax, &ops::kArgmax},
    {OpCode::dot, &ops::kDot},
    {OpCode::gather, &ops::kGather},
    {OpCode::scatter_add, &ops::kScatterAdd},
    {OpCode::gemm, &ops::kGemm},
    {OpCode::bias_add, &ops::kBiasAdd},
    {OpCode::column_sum, &ops::kColumnSum},
    {OpCode::embedding, &ops::kEmbedding},
    {OpCode::embedding_grad, &ops::kEmbeddingGrad},
    {OpCode::rms_norm, &ops::kRmsNorm},
    {OpCode::rms_norm_grad, &ops::kRmsNormGrad},
    {OpCode::layer_norm, &ops::kLayerNorm},
    {OpCode::layer_norm_grad, &ops::kLayerNormGrad},
    {OpCode::rope, &ops::kRope},
    {OpCode::attention, &ops::kAttention},
    {OpCode::attention_grad, &ops::kAttentionGrad},
    {OpCode::cache_write, &ops::kCacheWrite},
    {OpCode::gated_act, &ops::kGatedAct},
    {OpCode::gated_act_grad, &ops::kGatedActGrad},
    {OpCode::gelu, &ops::kGelu},
    {OpCode::gelu_grad, &ops::kGeluGrad},
    {OpCode::cross_entropy, &ops::kCrossEntropy},
    {OpCode::cross_entropy_grad, &ops::kCrossEntropyGrad},
    {OpCode::amax, &ops::kAmax},
    {OpCode::any_of, &ops::kAnyOf},
    {OpCode::quant_scale, &ops::kQuantScale},
    {OpCode::delayed_scale, &ops::kDelayedScale},
    {OpCode::periodic_scale, &ops::kPeriodicScale},
    {OpCode::quantize, &ops::kQuantize},
    {OpCode::quantize_both, &ops::kQuantizeBoth},
    {OpCode::quantize_groups, &ops::kQuantizeGroups},
    {OpCode::dequantize, &ops::kDequantize},
    {OpCode::add_quantize, &ops::kAddQuantize},
    {OpCode::fake_quantize, &ops::kFakeQuantize},
    {OpCode::amax_quantize, &ops::kAmaxQuantize},
    {OpCode::rms_norm_quantize, &ops::kRmsNormQuantize},
    {OpCode::layer_norm_quantize, &ops::kLayerNormQuantize},
    {OpCode::gated_act_quantize, &ops::kGatedActQuantize},
    {OpCode::gelu_quantize, &ops::kGeluQuantize},
    {OpCode::gated_act_grad_quantize, &ops::kGatedActGradQuantize},
    {OpCode::global_norm, &ops::kGlobalNorm},
    {OpCode::adamw_step, &ops::kAdamwStep},
    {OpCode::take_shard, &ops::kTakeShard},
    {OpCode::all_gather, &ops::kAllGather},
    {OpCode::reduce_scatter, &ops::kReduceScatter},
    {OpCode::all_reduce, &ops::kAllReduce},
    {OpCode::sharded_norm, &ops::kShardedNorm},
}};

constexpr bool in_order() {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (static_cast<size_t>(kOps[i].code) != i) return false;
  }
  return true;
}
static_assert(in_order(), "the list stands in OpCode's order");

}  // namespace

const OpDef& op_def(OpCode code) {
  CHECK(static_cast<size_t>(code) < kOps.size());
  const OpDef& def = *kOps[static_cast<size_t>(code)].def;
  CHECK(def.code == code);
  return def;
}

const OpDef* find_op(std::string_view name) {
  for (const Entry& entry : kOps) {
    if (entry.def->name == name) return entry.def;
  }
  return nullptr;
}

ValueIds all_operands(const Node& node) {
  ValueIds operands = node.operands;
  operands.resize(op_def(node.op).operands.size(), kNoValue);
  return operands;
}

bool reads_quantized(const Graph& graph, const Node& node) {
  return std::ranges::any_of(
      node.operands, [&](ValueId id) { return id != kNoValue && graph.type(id).is_scaled(); });
}

bool emits_amax(const Attrs& attrs) {
  return std::visit(
      [](const auto& a) {
        if constexpr (requires { a.amax; }) {
          return a.amax;
        } else {
          return false;
        }
      },
      attrs);
}

Attrs with_amax(Attrs attrs, bool amax) {
  std::visit(
      [&](auto& a) {
        if constexpr (requires { a.amax; }) a.amax = amax;
      },
      attrs);
  return attrs;
}

void check_operands(const OpDef& def, std::span<const ValueId> operands) {
  const SlotList& slots = def.operands;
  const size_t n = operands.size();
  if (!slots.fits(n)) {
    throw Error(ErrorCode::invalid_argument, "[{}] expected {} to {} operands, got {}", def.name,
                slots.n_required(), slots.size(), n);
  }
  for (size_t i = 0; i < n; ++i) {
    if (operands[i] == kNoValue && !slots[i].optional)
      throw Error(ErrorCode::invalid_argument, "[{}] expected {}, got none", def.name,
                  slots[i].name);
  }
}

void check_scales(const OpDef& def, std::span<const TensorType> operands) {
  const auto fail = [&](size_t slot, const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "[{}] {} {}", def.name, def.operands[slot].name, what);
  };
  const bool takes_runs = def.code == OpCode::adamw_step;  // of moments, and of nothing else
  // GEMMs read it so, and what lies transposed can be transposed.
  const bool takes_layouts = def.takes_factors || def.code == OpCode::transpose;
  for (size_t i = 0; i < operands.size(); ++i) {
    const TensorType& type = operands[i];
    if (type.layout.transposed && !takes_layouts)
      fail(i, fmt::format("must not lie transposed, got {}", to_string(type)));
    const auto place = std::ranges::find(def.scales, i, &ScalePlace::operand);
    if (place == def.scales.end()) {
      const bool goes_through = def.moves && type.has(Granularity::Kind::tensor);
      if (type.is_scaled() && !goes_through)
        fail(i, fmt::format("must not be quantized, got {}", to_string(type)));
      continue;
    }
    if (type.is_scaled() && type.has(Granularity::Kind::run) != takes_runs)
      fail(i, fmt::format("must {} quantized in runs, got {}", takes_runs ? "be" : "not be",
                          to_string(type)));
    const TensorType expected = scale_type(type);
    const TensorType got = place->scale < operands.size() ? operands[place->scale] : absent_type();
    if (!type.is_scaled() && def.takes_factors) continue;
    const bool is_open = got.dtype == Dtype::real && got.shape == expected.shape;
    if (got == expected || (is_open && type.is_scaled())) continue;
    if (type.is_scaled())
      fail(i, fmt::format("of {} must have the scales {}, got {}", to_string(type),
                          to_string(expected), got == absent_type() ? "none" : to_string(got)));
    fail(i, fmt::format("of {} is not quantized and has no scales", to_string(type)));
  }
}

Cost cost_of(const Graph& graph, const Node& node) {
  const OpDef& def = op_def(node.op);
  if (def.cost != nullptr) return def.cost(graph, node);
  return {.flops = 0, .bytes = ops::moved_bytes(graph, node)};
}

}  // namespace octet
