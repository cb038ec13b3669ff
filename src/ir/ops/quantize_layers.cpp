// A layer (norm or activation) and the per-tensor quantizer of its result in one, so that the wide
// result is never stored. Operands: the layer's, then scale and history, both optional. Without a
// scale the op makes its own: from the amax of its f32 result, or with a history as delayed_scale
// does. With a scale a norm may be given its statistics too, behind the history: what the same norm
// of the same x gave before.
#include <algorithm>

#include "ir/ops/list.h"
#include "ir/ops/norm.h"

namespace octet::ops {
namespace {

struct Fused {
  const OpDef& layer;
  Attrs plain;
  QuantizeAttrs q;
  bool both;
  size_t scale() const { return static_cast<size_t>(layer.max_operands); }
  size_t history() const { return scale() + 1; }
  // Of the statistics that may be given: mean (of layer_norm) and rstd.
  size_t first_statistic() const { return scale() + 2; }
  size_t n_statistics() const {
    return layer.code == OpCode::rms_norm ? 1 : layer.code == OpCode::layer_norm ? 2 : 0;
  }
  size_t rstd() const { return first_statistic() + n_statistics() - 1; }
};

Fused fused(OpCode code, const Attrs& attrs) {
  switch (code) {
    case OpCode::rms_norm_quantize:
    case OpCode::layer_norm_quantize: {
      const auto& a = std::get<NormQuantizeAttrs>(attrs);
      return {code == OpCode::rms_norm_quantize ? kRmsNorm : kLayerNorm, a.norm, a.q, a.both};
    }
    case OpCode::gated_act_quantize: {
      const auto& a = std::get<GatedActQuantizeAttrs>(attrs);
      return {kGatedAct, a.act, a.q, a.both};
    }
    default: {
      const auto& a = std::get<GeluQuantizeAttrs>(attrs);
      return {kGelu, a.act, a.q, a.both};
    }
  }
}

template <OpCode C>
void need_statistics(const Fused& f, Types in) {
  if (in.size() <= f.first_statistic()) return;
  if (absent(in, f.scale())) fail(op_def(C).name, "statistics are given with a scale only");
  for (size_t i = f.first_statistic(); i <= f.rstd(); ++i) {
    if (absent(in, i)) fail(op_def(C).name, "all statistics are given, or none");
    need_float(op_def(C).name, "statistics", in[i], {in[0].shape[0]});
  }
}

template <OpCode C>
Results infer_fused(const Attrs& attrs, Types in) {
  const Fused f = fused(C, attrs);
  const Results plain = f.layer.infer(f.plain, in.first(std::min(in.size(), f.scale())));
  const bool given = !absent(in, f.scale()), delayed = !absent(in, f.history());
  if (given && delayed) fail(op_def(C).name, "a scale that is given has no history");
  need_statistics<C>(f, in);
  if (f.both && f.q.transposed)
    fail(op_def(C).name, "codes are transposed, or both by row and transposed");
  const TensorType scale = given ? in[f.scale()] : real({});
  const Results quantized{plain[0], scale};
  const OpDef& quantize = f.both ? kQuantizeBoth : kQuantize;
  const Results codes = quantize.infer(f.q, quantized);
  Results results{codes[0]};
  if (!given) {
    results.push_back({.dtype = Dtype::f32, .shape = {}});
    results.push_back({.dtype = Dtype::boolean, .shape = {}});
    results.insert(results.end(), plain.begin() + 1, plain.end());
  }
  if (delayed) {
    const Results amax_and_history{real({}), in[f.history()]};
    results.push_back(kDelayedScale.infer(f.q, amax_and_history)[1]);
  }
  if (f.both) results.push_back(codes[1]);
  return results;
}

// The layer's results in f32; y alone where its statistics are given.
Values emit_layer(Builder& b, const Node& node, const Fused& f) {
  if (f.n_statistics() > 0 && !absent(node, f.rstd())) {
    const bool centred = f.n_statistics() == 2;
    const auto scales = static_cast<size_t>(f.layer.stored[0].scales);
    const std::vector<Dtype> wide{Dtype::f32};
    ValueId x = node.operands[0];
    if (const int64_t group = stored_group(f.plain); group > 0) {
      const QuantizeAttrs q{.dtype = b.type(x).dtype, .target = 0, .group = group};
      x = b.emit_typed(OpCode::dequantize, q, {x, operand(node, scales)}, wide)[0];
    } else if (b.type(x).dtype != Dtype::f32) {
      x = b.emit_typed(OpCode::cast, NoAttrs{}, {x}, wide)[0];
    }
    return {emit_normalized(
        b, {x, centred ? operand(node, f.first_statistic()) : kNoValue, operand(node, f.rstd()),
            operand(node, 1), centred ? operand(node, 2) : kNoValue})};
  }
  const auto n_layer = std::min(node.operands.size(), f.scale());
  const auto end = node.operands.begin() + static_cast<std::ptrdiff_t>(n_layer);
  const std::vector<Dtype> wide(3, Dtype::f32);
  return b.emit_typed(f.layer.code, f.plain, trimmed({node.operands.begin(), end}), wide);
}

template <OpCode C>
Values decompose_fused(Builder& b, const Node& node) {
  const Fused f = fused(C, node.attrs);
  const Values plain = emit_layer(b, node, f);
  ValueId scale = operand(node, f.scale());
  Values rest;  // of the results, behind the codes
  if (scale == kNoValue) {
    const Values amax = b.emit(OpCode::amax, NoAttrs{}, {plain[0]});
    const ValueId history = operand(node, f.history());
    const Values made = history == kNoValue
                            ? b.emit(OpCode::quant_scale, f.q, {amax[0]})
                            : b.emit(OpCode::delayed_scale, f.q, {amax[0], history});
    scale = made[0];
    rest = {scale, amax[1]};
    rest.insert(rest.end(), plain.begin() + 1, plain.end());
    rest.insert(rest.end(), made.begin() + 1, made.end());
  }
  const OpCode quantize = f.both ? OpCode::quantize_both : OpCode::quantize;
  Values results = b.emit(quantize, f.q, {plain[0], scale});
  results.insert(results.begin() + 1, rest.begin(), rest.end());
  return results;
}

// The history is shifted where it lies.
constexpr InplacePair kInplaceRms[] = {{.result = 4, .operand = 4}};
constexpr InplacePair kInplaceLayer[] = {{.result = 5, .operand = 5}};
constexpr InplacePair kInplaceGated[] = {{.result = 3, .operand = 5}};
constexpr InplacePair kInplaceGelu[] = {{.result = 3, .operand = 3}};

}  // namespace

constinit const OpDef kRmsNormQuantize = {.code = OpCode::rms_norm_quantize,
                                          .name = "rms_norm_quantize",
                                          .min_operands = 1,
                                          .max_operands = 6,
                                          .infer = infer_fused<OpCode::rms_norm_quantize>,
                                          .attrs = default_attrs<NormQuantizeAttrs>,
                                          .decompose = decompose_fused<OpCode::rms_norm_quantize>,
                                          .inplace = kInplaceRms,
                                          .statistics = 0b1010};
constinit const OpDef kLayerNormQuantize = {
    .code = OpCode::layer_norm_quantize,
    .name = "layer_norm_quantize",
    .min_operands = 1,
    .max_operands = 8,
    .infer = infer_fused<OpCode::layer_norm_quantize>,
    .attrs = default_attrs<NormQuantizeAttrs>,
    .decompose = decompose_fused<OpCode::layer_norm_quantize>,
    .inplace = kInplaceLayer,
    .statistics = 0b11010};
constinit const OpDef kGatedActQuantize = {.code = OpCode::gated_act_quantize,
                                           .name = "gated_act_quantize",
                                           .min_operands = 2,
                                           .max_operands = 6,
                                           .infer = infer_fused<OpCode::gated_act_quantize>,
                                           .attrs = default_attrs<GatedActQuantizeAttrs>,
                                           .decompose = decompose_fused<OpCode::gated_act_quantize>,
                                           .inplace = kInplaceGated};
constinit const OpDef kGeluQuantize = {.code = OpCode::gelu_quantize,
                                       .name = "gelu_quantize",
                                       .min_operands = 1,
                                       .max_operands = 4,
                                       .infer = infer_fused<OpCode::gelu_quantize>,
                                       .attrs = default_attrs<GeluQuantizeAttrs>,
                                       .decompose = decompose_fused<OpCode::gelu_quantize>,
                                       .inplace = kInplaceGelu};

}  // namespace octet::ops
