#include "passes/lower/fuse_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/op_def.h"
#include "ir/print.h"

namespace octet {
namespace {

constexpr std::array kRules = {
    FuseRule{"stored_operands", match_stored_operands},
    FuseRule{"add_quantize", match_add_quantize},
    FuseRule{"one_layout", match_one_layout},
    FuseRule{"layer_quantize", match_layer_quantize},
    FuseRule{"known_statistics", match_known_statistics},
    FuseRule{"gemm_accumulate", match_gemm_accumulate},
    FuseRule{"norm_grad_accumulate", match_norm_grad_accumulate},
};

std::vector<Dtype> result_dtypes(const Matcher& m, const Node& node) {
  std::vector<Dtype> dtypes;
  for (const ValueId id : node.results) dtypes.push_back(m.dtype(id));
  return dtypes;
}

}  // namespace

std::span<const FuseRule> fuse_rules() {
  return kRules;
}

const Node* scale_maker(const Matcher& m, const Node& quantize) {
  const Node* scale = m.producer(quantize.operands[1]);
  if (scale == nullptr || (scale->op != OpCode::quant_scale && scale->op != OpCode::delayed_scale))
    return nullptr;
  const auto target_of = [](const Node& node) {
    return std::get<QuantizeAttrs>(node.attrs).target;
  };
  return target_of(*scale) == target_of(quantize) ? scale : nullptr;
}

std::optional<Match> match_stored_operands(const Matcher& m, const Node& node,
                                           std::vector<std::string>&) {
  const auto places = op_def(node.op).stored;
  if (places.empty()) return std::nullopt;
  std::vector<ValueId> operands = node.operands;
  int64_t group = 0;
  for (const StoredPlace place : places) {
    const auto i = static_cast<size_t>(place.operand), scales = static_cast<size_t>(place.scales);
    const Node* dequantize = m.producer(node.operands[i]);
    if (dequantize == nullptr || dequantize->op != OpCode::dequantize) return std::nullopt;
    group = std::get<QuantizeAttrs>(dequantize->attrs).group;
    if (group == 0) return std::nullopt;
    operands.resize(std::max(operands.size(), scales + 1), kNoValue);
    operands[i] = dequantize->operands[0];
    operands[scales] = dequantize->operands[1];
  }
  return Match{.last = &node,
               .op = node.op,
               .attrs = with_stored_group(node.attrs, group),
               .operands = operands,
               .replaces = node.results,
               .dtypes = result_dtypes(m, node),
               .tag = node.tag};
}

std::optional<Match> match_add_quantize(const Matcher& m, const Node& node,
                                        std::vector<std::string>& near_misses) {
  if (node.op != OpCode::add || m.reader(node.results[0], OpCode::quantize_groups) == nullptr)
    return std::nullopt;
  const Node* cast = m.reader(node.results[0], OpCode::cast);
  const Node* groups = m.reader(node.results[0], OpCode::quantize_groups);
  if (cast == nullptr || m.readers(node.results[0]).size() != 2 || m.handed_out(node.results[0])) {
    near_misses.push_back(fmt::format(
        "add_quantize: {}: the sum is not read by one cast and one quantize_groups alone",
        print(m.graph(), node)));
    return std::nullopt;
  }
  return Match{.last = cast,
               .op = OpCode::add_quantize,
               .attrs = groups->attrs,
               .operands = node.operands,
               .replaces = {cast->results[0], groups->results[0], groups->results[1]},
               .dtypes = {m.dtype(cast->results[0])},
               .tag = node.tag,
               .consumed = {&node, groups}};
}

std::optional<Match> match_gemm_accumulate(const Matcher& m, const Node& node,
                                           std::vector<std::string>&) {
  if (node.op != OpCode::add) return std::nullopt;
  for (const size_t i : {1, 0}) {
    const Node* gemm = m.producer(node.operands[i]);
    const ValueId other = node.operands[1 - i];
    if (gemm == nullptr || gemm->op != OpCode::gemm ||
        (gemm->operands.size() > 2 && gemm->operands[2] != kNoValue))
      continue;
    if (!m.read_once(node.operands[i])) continue;
    if (m.dtype(other) != m.dtype(node.results[0]) ||
        m.dtype(gemm->results[0]) != m.dtype(node.results[0]))
      continue;
    // The forward residual stays apart, where it is repeated too: its sum is quantized from f32.
    if (gemm->tag.role == Role::forward ||
        std::get<GemmAttrs>(gemm->attrs).role == GemmRole::forward)
      continue;
    std::vector<ValueId> operands = gemm->operands;
    operands.resize(std::max<size_t>(operands.size(), 3), kNoValue);
    operands[2] = other;
    return Match{.last = &node,
                 .op = OpCode::gemm,
                 .attrs = gemm->attrs,
                 .operands = operands,
                 .replaces = node.results,
                 .dtypes = result_dtypes(m, node),
                 .tag = gemm->tag,
                 .consumed = {gemm}};
  }
  return std::nullopt;
}

std::optional<Match> match_norm_grad_accumulate(const Matcher& m, const Node& node,
                                                std::vector<std::string>&) {
  if (node.op != OpCode::add) return std::nullopt;
  const auto read_before = [&](ValueId value) { return m.read_before(value, node); };
  for (const size_t i : {1, 0}) {
    const Node* grad = m.producer(node.operands[i]);
    const ValueId other = node.operands[1 - i], dx = node.operands[i];
    if (grad == nullptr ||
        (grad->op != OpCode::rms_norm_grad && grad->op != OpCode::layer_norm_grad))
      continue;
    const auto addend = static_cast<size_t>(op_def(grad->op).max_operands - 1);
    if (dx != grad->results[0] || grad->operands.size() > addend) continue;
    if (!m.read_once(dx) ||
        std::any_of(grad->results.begin() + 1, grad->results.end(), read_before))
      continue;
    if (m.dtype(other) != m.dtype(node.results[0]) || m.dtype(dx) != m.dtype(node.results[0]) ||
        m.graph().type(other).shape != m.graph().type(dx).shape)
      continue;
    std::vector<ValueId> operands = grad->operands;
    operands.resize(addend, kNoValue);
    operands.push_back(other);
    std::vector<ValueId> replaced = grad->results;
    replaced[0] = node.results[0];
    return Match{.last = &node,
                 .op = grad->op,
                 .attrs = grad->attrs,
                 .operands = operands,
                 .replaces = replaced,
                 .dtypes = result_dtypes(m, *grad),
                 .tag = grad->tag,
                 .consumed = {grad}};
  }
  return std::nullopt;
}

}  // namespace octet
