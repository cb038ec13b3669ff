#include "passes/lower/fuse_rules.h"

#include <algorithm>
#include <array>

#include "ir/op_def.h"

namespace octet {
namespace {

const std::array kRules = {
    FuseRule{"stored_operands", {}, match_quantized_operands},
    FuseRule{"add_quantize", OpCode::add, match_add_quantize},
    FuseRule{"one_layout", OpCode::quantize_both, match_one_layout},
    FuseRule{"layer_quantize", {}, match_layer_quantize},
    FuseRule{"known_statistics", {}, match_known_statistics},
    FuseRule{"gemm_bias", OpCode::bias_add, match_gemm_bias},
    FuseRule{"gemm_accumulate", OpCode::add, match_gemm_accumulate},
    FuseRule{"norm_grad_accumulate", OpCode::add, match_norm_grad_accumulate},
    FuseRule{"stored_moment", OpCode::adamw_step, match_scaled_moment},
    FuseRule{"gemm_quantize", OpCode::quantize, match_gemm_quantize},
    FuseRule{"kept_operands", {}, match_kept_operands},
    FuseRule{"gradient_quantize", OpCode::gated_act_grad, match_gradient_quantize},
    FuseRule{"stored_weight", OpCode::gemm, match_quantized_weight},
    FuseRule{"residual", OpCode::add, match_residual},
};

// The terms of a sum, the second first: which is looked at, and the other.
std::array<std::pair<ValueId, ValueId>, 2> both_orders(const Node& sum) {
  const ValueId a = sum.in(Binary::a), b = sum.in(Binary::b);
  return {{{b, a}, {a, b}}};
}

// gemm with c as its addend, in the place of the sum of both.
Match with_addend(const Matcher& m, const Node& sum, const Node& gemm, ValueId c) {
  ValueIds operands = all_operands(gemm);
  operands[Gemm::c] = c;
  return {.last = m.id(sum),
          .op = OpCode::gemm,
          .attrs = gemm.attrs,
          .operands = operands,
          .replaces = sum.results,
          .tag = gemm.tag,
          .consumed = {m.id(gemm)}};
}

// Of forward products those of at most so many rows.
std::optional<Match> match_accumulate(const Matcher& m, const Node& node, int64_t forward_rows) {
  const Dtype dtype = m.dtype(node.out(Binary::y));
  for (const auto& [product, other] : both_orders(node)) {
    const Node* gemm = m.producer(product, OpCode::gemm);
    if (gemm == nullptr || gemm->in(Gemm::c) != kNoValue) continue;
    if (!m.read_once(product)) continue;
    if (m.dtype(other) != dtype || m.dtype(product) != dtype) continue;
    const bool is_forward = gemm->tag.role == Role::forward ||
                            std::get<GemmAttrs>(gemm->attrs).role == GemmRole::forward;
    if (is_forward && m.type(product).shape[0] > forward_rows) continue;
    return with_addend(m, node, *gemm, other);
  }
  return std::nullopt;
}

}  // namespace

std::span<const FuseRule> fuse_rules() {
  return kRules;
}

const Node* scale_maker(const Matcher& m, const Node& quantize) {
  if (!std::get<QuantizeAttrs>(quantize.attrs).has_default_scaling()) return nullptr;
  const Node* scale = m.producer(quantize.in(Quantize::scale));
  if (scale == nullptr || (scale->op != OpCode::quant_scale && scale->op != OpCode::delayed_scale))
    return nullptr;
  const auto& made = std::get<AmaxScaleAttrs>(scale->attrs);
  return made == scale_attrs(std::get<QuantizeAttrs>(quantize.attrs)) ? scale : nullptr;
}

std::optional<Match> match_quantized_operands(const Matcher& m, const Node& node) {
  if (!op_def(node.op).saves) return std::nullopt;
  ValueIds operands = all_operands(node);
  std::optional<Granularity> by;  // of all
  for (const ScalePlace place : op_def(node.op).scales) {
    const Node* dequantize = m.producer(node.in(place.operand), OpCode::dequantize);
    if (dequantize == nullptr) return std::nullopt;
    const ValueId q = dequantize->in(Dequantize::q);
    const Granularity& own = m.type(q).granularity;
    const bool is_read_so = own.kind == Granularity::Kind::tensor || m.type(q).in_row_groups();
    if (!is_read_so || own != by.value_or(own)) return std::nullopt;
    by = own;
    operands[place.operand] = q;
    operands[place.scale] = dequantize->in(Dequantize::scale);
  }
  return Match{.last = m.id(node),
               .op = node.op,
               .attrs = node.attrs,
               .operands = operands,
               .replaces = node.results,
               .tag = node.tag};
}

std::optional<Match> match_add_quantize(const Matcher& m, const Node& node) {
  const ValueId sum = node.out(Binary::y);
  const Node* cast = m.reader(sum, OpCode::cast);
  const Node* groups = m.reader(sum, OpCode::quantize_groups);
  if (groups == nullptr || !std::get<QuantizeAttrs>(groups->attrs).has_default_scaling() ||
      !m.type(groups->out(QuantizeGroups::q)).in_row_groups())
    return std::nullopt;
  if (cast == nullptr || m.readers(sum).size() != 2 || m.is_graph_output(sum)) {
    m.near_miss("add_quantize", node,
                "the sum is not read by one cast and one quantize_groups alone");
    return std::nullopt;
  }
  return Match{.last = m.id(*cast),
               .op = OpCode::add_quantize,
               .attrs = groups->attrs,
               .operands = node.operands,
               .replaces = {cast->out(Unary::y), groups->out(QuantizeGroups::q),
                            groups->out(QuantizeGroups::scale)},
               .tag = node.tag,
               .consumed = {m.id(node), m.id(*groups)}};
}

std::optional<Match> match_gemm_quantize(const Matcher& m, const Node& node) {
  const auto& stores_codes = m.options().stores_codes;
  if (!stores_codes) return std::nullopt;
  const TensorType& q = m.type(node.out(Quantize::q));
  const Node *gemm = m.producer(node.in(Quantize::x), OpCode::gemm),
             *scale = m.producer(node.in(Quantize::scale), OpCode::fill);
  const bool has_default_scaling = std::get<QuantizeAttrs>(node.attrs).has_default_scaling();
  if (q.dtype != Dtype::e4m3 || q.layout.transposed || !has_default_scaling || gemm == nullptr ||
      scale == nullptr)
    return std::nullopt;
  const auto& attrs = std::get<GemmAttrs>(gemm->attrs);
  const TensorType &a = m.type(gemm->in(Gemm::a)), &b = m.type(gemm->in(Gemm::b));
  const Shape& y = m.type(node.in(Quantize::x)).shape;
  const bool fits = m.read_once(node.in(Quantize::x)) && !reads_transposed(a, attrs.trans_a) &&
                    reads_transposed(b, attrs.trans_b) && gemm->in(Gemm::c) == kNoValue &&
                    a.dtype == Dtype::e4m3 && b.dtype == Dtype::e4m3 &&
                    stores_codes(y[0], y[1], read_shape(a, attrs.trans_a)[1]);
  if (!fits) return std::nullopt;
  ValueIds operands = all_operands(*gemm);
  operands[Gemm::scale_y] = node.in(Quantize::scale);
  return Match{.last = m.id(node),
               .op = OpCode::gemm,
               .attrs = gemm->attrs,
               .operands = operands,
               .replaces = node.results,
               .tag = gemm->tag,
               .consumed = {m.id(*gemm)}};
}

std::optional<Match> match_gemm_bias(const Matcher& m, const Node& node) {
  const ValueId product = node.in(BiasAdd::x);
  const Node* gemm = m.producer(product, OpCode::gemm);
  const bool is_one = gemm != nullptr && m.options().adds_bias && m.read_once(product) &&
                      gemm->in(Gemm::c) == kNoValue && gemm->in(Gemm::scale_y) == kNoValue &&
                      m.type(product) == m.type(node.out(BiasAdd::y));
  if (!is_one) return std::nullopt;
  Match match = with_addend(m, node, *gemm, node.in(BiasAdd::bias));
  Node fused = *gemm;
  fused.operands = match.operands;
  if (!m.options().adds_bias(m.graph(), fused)) return std::nullopt;
  return match;
}

// The forward residual stays apart, where it is repeated too: its sum is quantized from f32.
std::optional<Match> match_gemm_accumulate(const Matcher& m, const Node& node) {
  return match_accumulate(m, node, 0);
}

std::optional<Match> match_residual(const Matcher& m, const Node& node) {
  const int64_t rows = m.options().few_rows;
  return rows > 0 ? match_accumulate(m, node, rows) : std::nullopt;
}

std::optional<Match> match_quantized_weight(const Matcher& m, const Node& node) {
  const auto& attrs = std::get<GemmAttrs>(node.attrs);
  const Shape& y = m.type(node.out(Gemm::y)).shape;
  const Shape& x = m.type(node.in(Gemm::a)).shape;
  const Dtype wide = m.dtype(node.in(Gemm::a));
  const Node* dequantize = m.producer(node.in(Gemm::b), OpCode::dequantize);
  const bool fits = y[0] <= m.options().few_rows && !attrs.trans_a && attrs.trans_b &&
                    x[1] % 16 == 0 && (wide == Dtype::bf16 || wide == Dtype::fp16) &&
                    node.in(Gemm::scale_a) == kNoValue && node.in(Gemm::scale_b) == kNoValue;
  if (!fits || dequantize == nullptr) return std::nullopt;
  const TensorType& stored = m.type(dequantize->in(Dequantize::q));
  if (stored.dtype != Dtype::e4m3 || !stored.has(Granularity::Kind::tensor)) return std::nullopt;
  if (!m.read_once(node.in(Gemm::b))) return std::nullopt;
  ValueIds operands = all_operands(node);
  operands[Gemm::b] = dequantize->in(Dequantize::q);
  operands[Gemm::scale_b] = dequantize->in(Dequantize::scale);
  return Match{.last = m.id(node),
               .op = OpCode::gemm,
               .attrs = node.attrs,
               .operands = operands,
               .replaces = node.results,
               .tag = node.tag,
               .consumed = {m.id(*dequantize)}};
}

std::optional<Match> match_norm_grad_accumulate(const Matcher& m, const Node& node) {
  const auto read_before = [&](ValueId value) { return m.read_before(value, node); };
  const Dtype dtype = m.dtype(node.out(Binary::y));
  for (const auto& [dx, other] : both_orders(node)) {
    const Node* grad = m.producer(dx);
    if (grad == nullptr || !is_norm_gradient(grad->op)) continue;
    const bool centred = op_def(grad->op).is_centred;
    const SlotId addend = centred ? SlotId{LayerNormGrad::addend} : SlotId{RmsNormGrad::addend};
    if (dx != grad->results.front() || grad->in(addend) != kNoValue) continue;
    if (!m.read_once(dx) ||
        std::any_of(grad->results.begin() + 1, grad->results.end(), read_before))
      continue;
    if (m.dtype(other) != dtype || m.dtype(dx) != dtype || m.type(other).shape != m.type(dx).shape)
      continue;
    ValueIds operands = all_operands(*grad);
    operands[addend] = other;
    ValueIds replaced = grad->results;
    replaced.front() = node.out(Binary::y);
    return Match{.last = m.id(node),
                 .op = grad->op,
                 .attrs = grad->attrs,
                 .operands = operands,
                 .replaces = replaced,
                 .tag = grad->tag,
                 .consumed = {m.id(*grad)}};
  }
  return std::nullopt;
}

}  // namespace octet
