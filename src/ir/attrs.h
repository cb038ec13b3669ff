// One struct of attributes per op or family; fields() names each for printer, parser, comparison.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "ir/attr_enums.h"
#include "ir/picture_attrs.h"
#include "ir/primitive_attrs.h"

namespace octet {

// gemm: y = op(a) op(b) (+ c), as E4M3 codes of y / scale_y where that is given; op transposes or
// not; role: which of a linear's three it is. To be faster, fast_accumulate may shorten sums of
// codes' products, and tf32 f32 factors, below f32.
struct GemmAttrs {
  bool trans_a = false, trans_b = false;
  GemmRole role = GemmRole::other;
  bool fast_accumulate = false, tf32 = false;
  OCTET_ATTRS(GemmAttrs) {
    f("trans_a", s.trans_a), f("trans_b", s.trans_b), f("role", s.role);
    f("fast_accumulate", s.fast_accumulate), f("tf32", s.tf32);
  }
};
// `amax` in gradients and rope: two more results, OpDef::amax_results.
struct NormAttrs {
  double eps = 1e-5;
  bool amax = false;
  OCTET_ATTRS(NormAttrs) { f("eps", s.eps), f("amax", s.amax); }
};
// seq: of dynamic; beta_fast, beta_slow, truncate: of yarn; divisors: of longrope, one a pair
// (ir/ops/rope.h).
struct RopeAttrs {
  int64_t heads = 1, head_dim = 2;
  double theta = 10000;
  bool inverse = false, amax = false;  // inverse: by the negative angle, the gradient
  RopeScaling scaling = RopeScaling::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position = 8192, seq = 0;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  std::vector<double> divisors = {};
  OCTET_ATTRS(RopeAttrs) {
    f("heads", s.heads), f("head_dim", s.head_dim), f("theta", s.theta), f("inverse", s.inverse);
    f("scaling", s.scaling), f("factor", s.factor), f("low_freq_factor", s.low_freq_factor);
    f("high_freq_factor", s.high_freq_factor), f("original_max_position", s.original_max_position);
    f("seq", s.seq), f("beta_fast", s.beta_fast), f("beta_slow", s.beta_slow);
    f("truncate", s.truncate), f("amax", s.amax);
    if (!std::is_const_v<Self> || !s.divisors.empty()) f("divisors", s.divisors);
  }
};
// q_len and kv_len: queries and keys a batch entry. window: keys that a query sees, its own the
// last (of a full mask as many behind it); 0: all. softcap: scaled products s become softcap tanh(s
// / softcap); 0: they stay. bias_gradient: attention_grad makes that of the bias.
struct AttentionAttrs {
  int64_t batch = 1, q_len = 1, kv_len = 1, heads = 1, kv_heads = 1, head_dim = 1;
  double scale = 1;
  AttentionMask mask = AttentionMask::causal;
  int64_t window = 0;
  double softcap = 0;
  AttentionKeys keys = AttentionKeys::appended;
  bool bias_gradient = false;
  OCTET_ATTRS(AttentionAttrs) {
    f("batch", s.batch), f("q_len", s.q_len), f("kv_len", s.kv_len), f("heads", s.heads);
    f("kv_heads", s.kv_heads), f("head_dim", s.head_dim), f("scale", s.scale), f("mask", s.mask);
    f("window", s.window), f("keys", s.keys), f("bias_gradient", s.bias_gradient);
    if (!std::is_const_v<Self> || s.softcap != 0) f("softcap", s.softcap);
  }
};
struct GatedActAttrs {
  Activation act = Activation::silu;
  bool amax = false;
  OCTET_ATTRS(GatedActAttrs) { f("act", s.act), f("amax", s.amax); }
};
struct GeluAttrs {
  GeluKind kind = GeluKind::tanh;
  bool amax = false;
  OCTET_ATTRS(GeluAttrs) { f("kind", s.kind), f("amax", s.amax); }
};
// Quantizers: the magnitude that amax is mapped to, and by which rule; the type of the result says
// the rest. source: the type whose bits hybrid rounding (hr) draws from. limit: of a tensor
// with a given scale; where |x / scale| is above it the code is NaN, which GEMMs carry on, where a
// saturated one would hide what happened; 0: no limit. stream: of stochastic rounding (sr), the
// name of its words, which are counted by element; the op's operand `draw` has the rest of their
// key.
struct QuantizeAttrs {
  double target = 448;
  ScaleRule rule = ScaleRule::linear;
  Rounding rounding = Rounding::near;
  Dtype source = Dtype::f32;
  double limit = 0;
  int64_t stream = 0;
  OCTET_ATTRS(QuantizeAttrs) {
    f("target", s.target), f("rule", s.rule), f("rounding", s.rounding), f("source", s.source);
    // Printed where there is one.
    if (!std::is_const_v<Self> || s.limit != 0) f("limit", s.limit);
    if (!std::is_const_v<Self> || s.stream != 0) f("stream", s.stream);
  }
  // The scaling that kernels know which quantize as they store.
  bool has_default_scaling() const {
    return rule == ScaleRule::linear && rounding == Rounding::near;
  }
};
// The scale of a tensor from its amax.
struct AmaxScaleAttrs {
  double target = 448;
  ScaleRule rule = ScaleRule::linear;
  OCTET_ATTRS(AmaxScaleAttrs) { f("target", s.target), f("rule", s.rule); }
};
inline AmaxScaleAttrs scale_attrs(const QuantizeAttrs& q) {
  return {.target = q.target, .rule = q.rule};
}
// A quantizer that makes its scale. measures: from the amax of its operand too.
struct AmaxQuantizeAttrs {
  QuantizeAttrs q;
  bool both = false, measures = true;
  OCTET_ATTRS(AmaxQuantizeAttrs) {
    QuantizeAttrs::fields(s.q, f), f("both", s.both), f("measures", s.measures);
  }
};
// A layer, or the gradient of one, and the per-tensor quantizer of its result. both: codes by row,
// and transposed. kept_target: of the operands that an activation keeps beside its result,
// quantized as quantize_groups does; 0: none.
template <typename Layer>
struct LayerQuantizeAttrs {
  Layer layer = {};
  QuantizeAttrs q = {};
  bool both = false;
  double kept_target = 0;
  OCTET_ATTRS(LayerQuantizeAttrs) {
    Layer::fields(s.layer, [&f](const char* name, auto& value) {
      if (std::string_view(name) != "amax") f(name, value);
    });
    QuantizeAttrs::fields(s.q, f), f("both", s.both);
    if constexpr (!std::is_same_v<Layer, NormAttrs>) f("kept_target", s.kept_target);
  }
};
using NormQuantizeAttrs = LayerQuantizeAttrs<NormAttrs>;
using GatedActQuantizeAttrs = LayerQuantizeAttrs<GatedActAttrs>;
using GeluQuantizeAttrs = LayerQuantizeAttrs<GeluAttrs>;
// stream: the parameter's name_hash, and seed: the run's, key the
// words of stochastic rounding; first: the place of element 0 in the parameter, not 0 in a shard.
// amax: two more results, of the new weight (OpDef::amax_results).
struct AdamwAttrs {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  bool expand_m = false, expand_v = false, stochastic_m = false, stochastic_v = false;
  bool stochastic_w = false;
  PowerMath math = PowerMath::fast;
  int64_t stream = 0, seed = 0, first = 0;
  bool amax = false;
  OCTET_ATTRS(AdamwAttrs) {
    f("beta1", s.beta1), f("beta2", s.beta2), f("eps", s.eps), f("weight_decay", s.weight_decay);
    f("expand_m", s.expand_m), f("expand_v", s.expand_v);
    f("stochastic_m", s.stochastic_m), f("stochastic_v", s.stochastic_v);
    f("stochastic_w", s.stochastic_w), f("math", s.math), f("stream", s.stream), f("seed", s.seed);
    f("first", s.first), f("amax", s.amax);
  }
};
// update: of its values the first so many are scalars of the step, the others states. shape: of the
// whole weight; with several ranks weight, gradient and states may be this rank's shards of it.
// decay: whether weights decay.
struct UpdateAttrs {
  UpdateKind rule = UpdateKind::adamw;
  bool decay = true;
  double lr = 1;  // a factor of the step's learning rate
  int64_t scalars = 0;
  Shape shape;
  int64_t ranks = 1, rank = 0;
  OCTET_ATTRS(UpdateAttrs) {
    f("rule", s.rule), f("decay", s.decay);
    if (!std::is_const_v<Self> || s.lr != 1) f("lr", s.lr);
    f("scalars", s.scalars), f("shape", s.shape), f("ranks", s.ranks), f("rank", s.rank);
  }
};

using Attrs =
    std::variant<NoAttrs, ScaleAttrs, DynamicRescaleAttrs, CustomScaleAttrs, CastInAttrs, FillAttrs,
                 IotaAttrs, BroadcastAttrs, ReshapeAttrs, TransposeAttrs, SliceAttrs, PadAttrs,
                 AxisAttrs, AxesAttrs, DotAttrs, BatchedGemmAttrs, ScatterAddAttrs, GemmAttrs,
                 NormAttrs, RopeAttrs, AttentionAttrs, CacheAttrs, GatedActAttrs, GeluAttrs,
                 AdamwAttrs, QuantizeAttrs, AmaxScaleAttrs, FakeQuantizeAttrs, AmaxQuantizeAttrs,
                 NormQuantizeAttrs, GatedActQuantizeAttrs, GeluQuantizeAttrs, ShardAttrs,
                 CollectiveAttrs, StoreScaledAttrs, StateAttrs, UpdateAttrs, CrossEntropyAttrs,
                 PowerAttrs, WindowAttrs, UnfoldAttrs, ConvolutionAttrs, BatchNormAttrs,
                 GatedDeltaAttrs>;

}  // namespace octet
