#include "passes/precision/quantize_linears.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "passes/precision/linear_groups.h"
#include "passes/precision/operand_scales.h"
#include "passes/precision/operand_types.h"
#include "passes/precision/store_frozen.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

using Kind = OperandKind;

// Codes of a weight that are kept.
struct Copy {
  ValueId value = kNoValue;  // the derived input
  QuantizeAttrs attrs;
};

// An operand of a GEMM, and what the GEMM reads of it.
struct Operand {
  ValueId value;
  Kind kind;
  const OperandFormat& format;
};

// One in blocks.
struct Blocks {
  ValueId q = kNoValue, scale = kNoValue;
};

class LinearQuantizer {
 public:
  LinearQuantizer(const Graph& graph, const LinearGroups& groups,
                  const QuantizeLinearsOptions& options)
      : rewriter_(graph),
        b_(rewriter_.builder()),
        groups_(groups),
        options_(options),
        scale_maker_(b_, options) {}

  Graph run() {
    const Graph& from = rewriter_.from();
    for (size_t n = 0; n < from.nodes.size(); ++n) {
      const LinearGroup* group = groups_.of(static_cast<NodeId>(n));
      if (group == nullptr)
        rewriter_.copy(from.nodes[n]);
      else
        quantized_gemm(from.nodes[n], *group);
    }
    if (trains()) refresh_copies();
    Graph result = rewriter_.finish();
    Builder builder(result);
    for (const auto& [value, updates] : scale_maker_.updates()) builder.next(updates, value);
    for (const auto& [value, updates] : new_outputs_) builder.next(updates, value);
    if (flags_.empty()) return result;
    builder.tag = Tag{.layer = -1, .role = Role::backward, .origin = std::string(kQuantizerFlag)};
    builder.output(std::string(kQuantizerFlag), builder.emit1(OpCode::any_of, NoAttrs{}, flags_));
    return result;
  }

 private:
  Kind kind_of(const Node& node, const LinearGroup& group, ValueId operand) const {
    if (std::find(group.gradients.begin(), group.gradients.end(), operand) !=
            group.gradients.end() &&
        LinearGroups::gemm(node).role != GemmRole::forward) {
      return Kind::dy;
    }
    return is_weight(rewriter_.from(), operand) ? Kind::w : Kind::x;
  }

  void quantized_gemm(const Node& node, const LinearGroup& group) {
    const GemmRole role = LinearGroups::gemm(node).role;
    const auto is_wide = [&](SlotId factor) {
      return !group.format(kind_of(node, group, node.in(factor)), role).quantized;
    };
    if (is_wide(Gemm::a) && is_wide(Gemm::b)) {
      rewriter_.copy(node);
      return;
    }
    if (is_wide(Gemm::a) || is_wide(Gemm::b)) return half_wide_gemm(node, group);
    const GemmAttrs& attrs = LinearGroups::gemm(node);
    ValueIds operands(op_def(OpCode::gemm).operands.size(), kNoValue);
    operands[Gemm::c] = rewriter_.map(node.in(Gemm::c));
    const bool fast = role == GemmRole::forward || options_.fast_accumulate == FastAccumulate::all;
    const bool k_major = is_k_major(options_, group, role);
    const GemmAttrs of_codes{
        .trans_a = attrs.trans_a, .trans_b = attrs.trans_b, .role = role, .fast_accumulate = fast};
    const auto quantize = [&](SlotId factor, SlotId scale, bool trans) {
      const ValueId operand = node.in(factor);
      const Kind kind = kind_of(node, group, operand);
      const OperandFormat& format = group.format(kind, role);
      b_.tag = node.tag;
      if (format.is_block()) {
        const Blocks blocks = blocks_of(group, {operand, kind, format}, trans ? 0 : 1);
        operands[factor] = blocks.q;
        operands[scale] = blocks.scale;
        return;
      }
      const Operand read{operand, kind, format};
      operands[scale] = scale_of(group, read);
      operands[factor] = codes_of(group, read, k_major && trans, operands[scale]);
    };
    // K-major as it lies: a with its reduction last, or b transposed.
    quantize(Gemm::a, Gemm::scale_a, attrs.trans_a);
    quantize(Gemm::b, Gemm::scale_b, !attrs.trans_b);
    if (role == GemmRole::forward) make_backward_x(node, group);
    b_.tag = node.tag;
    if (node.in(Gemm::scale_a) != kNoValue)
      operands[Gemm::scale_a] =
          joined(operands[Gemm::scale_a], rewriter_.map(node.in(Gemm::scale_a)));
    rewriter_.replace(node, OpCode::gemm, of_codes, operands);
  }

  // What wgrad reads of x, where it is not what the forward GEMM read: its scale, and where the
  // backward pass does not compute x again its codes.
  void make_backward_x(const Node& node, const LinearGroup& group) {
    const Graph& from = rewriter_.from();
    const bool is_read = std::ranges::any_of(group.backward, [&](NodeId n) {
      return LinearGroups::gemm(from.node(n)).role == GemmRole::wgrad;
    });
    const ValueId x = node.in(Gemm::a);
    const OperandFormat& format = group.format(Kind::x, GemmRole::wgrad);
    if (!is_read || !format.quantized || kind_of(node, group, x) != Kind::x) return;
    const Operand read{x, Kind::x, format};
    if (format.is_block()) {
      if (options_.keep_transposed_x && block_scales(options_, format) == Dtype::f32)
        blocks_of(group, read, 0);
      return;
    }
    if (!group.formats.backward_x) return;  // made with the forward GEMM's
    const ValueId scale = scale_of(group, read);
    if (options_.keep_transposed_x)
      codes_of(group, read, is_k_major(options_, group, GemmRole::wgrad), scale);
  }

  // One factor is not quantized: the other is dequantized.
  void half_wide_gemm(const Node& node, const LinearGroup& group) {
    const GemmAttrs& attrs = LinearGroups::gemm(node);
    ValueIds operands = rewriter_.map(node.operands);
    b_.tag = node.tag;
    operands[Gemm::a] = dequantized(node, group, Gemm::a, attrs.trans_a ? 0 : 1);
    operands[Gemm::b] = dequantized(node, group, Gemm::b, attrs.trans_b ? 1 : 0);
    rewriter_.replace(node, OpCode::gemm, attrs, operands);
  }

  // The factor as the GEMM that reduces this axis would read its codes; or as it is.
  ValueId dequantized(const Node& node, const LinearGroup& group, SlotId factor, int axis) {
    const ValueId operand = node.in(factor);
    const Kind kind = kind_of(node, group, operand);
    const OperandFormat& format = group.format(kind, LinearGroups::gemm(node).role);
    const Operand read{operand, kind, format};
    if (!format.quantized) return rewriter_.map(operand);
    if (format.is_block()) return as_wide(blocks_of(group, read, axis), operand);
    const ValueId scale = scale_of(group, read);
    return as_wide({codes_of(group, read, false, scale), scale}, operand);
  }

  // Of two scalar factors one.
  ValueId joined(ValueId a, ValueId b) {
    const auto constant = [&](ValueId id) -> std::optional<double> {
      const Node* node = b_.graph().producer(id, OpCode::fill);
      if (node == nullptr) return std::nullopt;
      return std::get<FillAttrs>(node->attrs).value;
    };
    const auto x = constant(a), y = constant(b);
    return x && y ? scale_maker_.power(std::ilogb(*x * *y)) : b_.mul(a, b);
  }

  // The operand in blocks, for a GEMM that reduces this axis of it.
  Blocks blocks_of(const LinearGroup& group, const Operand& read, int axis) {
    const auto& [operand, kind, fmt] = read;
    const ResultType type =
        block_type(options_, fmt, axis, rewriter_.from().type(operand).shape[0]);
    const auto key = std::tuple(operand, kind, fmt.dtype, type.granularity.kind);
    if (const auto it = blocks_.find(key); it != blocks_.end()) return it->second;
    ValueId value = rewriter_.map(operand);
    const bool is_again = kind == Kind::x && axis == 0 &&
                          block_scales(options_, fmt) == Dtype::bf16 &&
                          type.granularity.kind != Granularity::Kind::block;
    if (is_again) {
      value = as_wide(blocks_of(group, read, 1), operand);
    } else if (kind != Kind::w) {
      amax_of({rewriter_.map(measured_operand(rewriter_.from(), group, operand))});
    }
    const auto results =
        b_.emit_typed(OpCode::quantize_groups, block_attrs(options_, fmt), {value}, {type});
    return blocks_[key] = {results[QuantizeGroups::q], results[QuantizeGroups::scale]};
  }

  // What a GEMM read, as numbers: of blocks, powers of two make them exact in BF16.
  ValueId as_wide(const Blocks& read, ValueId operand) {
    const Dtype dtype = rewriter_.from().type(operand).dtype;
    const Dtype wide = dtype == Dtype::fp16 ? Dtype::f32 : dtype;
    return b_.dequantize(read.q, read.scale, wide);
  }

  // Whether anything is kept of the group's weights between updates: not of those that are
  // dequantized.
  bool keeps_copies(const LinearGroup& group) const {
    const Graph& from = rewriter_.from();
    return group.tensor_weight().quantized && !group.tensor_weight().is_block() &&
           options_.weight_copy != WeightCopy::per_use && !has_power_scales(options_.scaling) &&
           std::ranges::all_of(group.weights,
                               [&](ValueId w) { return from.input_of(w) != nullptr; });
  }

  // What shares the operand's scale; of a weight that is dequantized, that one alone.
  ValueIds members_of(const LinearGroup& group, Kind kind, ValueId operand) const {
    if (kind == Kind::dy) return group.gradients;
    const bool is_plain = kind == Kind::w && rewriter_.from().input_of(operand) != nullptr;
    return is_plain ? group.weights : ValueIds{operand};
  }

  // Over these values of the new graph, which the step's flag tells of.
  ValueId amax_of(const ValueIds& values) {
    const auto [it, is_new] = maxima_.try_emplace(values, kNoValue);
    if (!is_new) return it->second;
    const auto amax = b_.emit(OpCode::amax, NoAttrs{}, values);
    flags_.push_back(amax[AmaxOp::nonfinite]);
    return it->second = amax[AmaxOp::amax];
  }

  // One scale per x, and per group for weights and gradients.
  ValueId scale_of(const LinearGroup& group, const Operand& read) {
    const auto& [operand, kind, fmt] = read;
    const Graph& from = rewriter_.from();
    const Node* stored = kind == Kind::w ? stored_weight(from, operand, fmt.dtype) : nullptr;
    if (stored != nullptr) return rewriter_.map(stored->in(Dequantize::scale));
    const auto members = members_of(group, kind, measured_operand(from, group, operand));
    const GraphInput* frozen = kind == Kind::w ? frozen_weight(from, operand) : nullptr;
    const ValueId first = frozen != nullptr && members.size() == 1 ? frozen->value : members[0];
    const auto key = std::tuple(first, kind, fmt.dtype);
    if (const auto it = scales_.find(key); it != scales_.end()) return it->second;
    if (predicts()) return scales_[key] = scale_maker_.predicted(group, kind, fmt.dtype);
    if (kind == Kind::w && keeps_copies(group))
      return scales_[key] = b_.state(StateUse::weight_scale, group.name, {Dtype::f32, {}});
    if (const ValueId known = scale_maker_.known(group, kind); known != kNoValue)
      return scales_[key] = known;
    const ValueId amax = amax_of(rewriter_.map(members));
    const ValueId scale = scale_maker_.measured(group, kind, fmt.target, amax);
    if (options_.detects_overflow && kind == Kind::dy && options_.scaling != Scaling::current)
      flags_.push_back(scale_maker_.overflow(fmt.dtype, amax, scale));
    return scales_[key] = scale;
  }

  bool predicts() const { return !options_.predicted.empty(); }

  ValueId codes_of(const LinearGroup& group, const Operand& read, bool transposed, ValueId scale) {
    const auto& [operand, kind, fmt] = read;
    const auto key = std::tuple(operand, kind, fmt.dtype, transposed);
    if (const auto it = codes_.find(key); it != codes_.end()) return it->second;
    QuantizeAttrs attrs = tensor_attrs(options_, fmt, kind, rewriter_.from().type(operand).dtype);
    attrs.limit = scale_maker_.limit(fmt.dtype, kind);
    // Tokens are padded, where they are the reduction: both factors of wgrad. Weights are as long
    // as the codes that they meet.
    const ResultType by_row = fmt.dtype, lying = by_row.transposed(kind == Kind::w ? 1 : kPadRows);
    if (kind == Kind::w) {
      if (const Node* stored = stored_weight(rewriter_.from(), operand, fmt.dtype)) {
        const ValueId q = rewriter_.map(stored->in(Dequantize::q));
        return codes_[key] = transposed ? b_.laid_out(q, true) : q;
      }
      if (keeps_codes(options_.weight_copy) && keeps_copies(group))
        return codes_[key] = copied_codes(operand, attrs, transposed ? lying : by_row);
    }
    const ValueId value = rewriter_.map(operand);
    // Both forms in one pass where both are wanted at once: gradients always, x where its transpose
    // is kept and the forward GEMM reads the same.
    const bool both_of_x =
        kind == Kind::x && options_.keep_transposed_x && trains() && !group.formats.backward_x;
    const bool both =
        is_k_major(options_, group, GemmRole::wgrad) && (kind == Kind::dy || both_of_x);
    if (both) {
      const auto results =
          b_.emit_typed(OpCode::quantize_both, attrs, {value, scale}, {by_row, lying});
      const ValueId q = codes_[{operand, kind, fmt.dtype, false}] = results[QuantizeBoth::q];
      const ValueId q_t = codes_[{operand, kind, fmt.dtype, true}] =
          results[QuantizeBoth::q_transposed];
      return transposed ? q_t : q;
    }
    const ResultType& type = transposed ? lying : by_row;
    return codes_[key] = b_.emit_typed(OpCode::quantize, attrs, {value, scale}, {type})[0];
  }

  // The kept codes in this layout, or made from those that are kept in the other.
  ValueId copied_codes(ValueId weight, const QuantizeAttrs& attrs, const ResultType& said) {
    const std::string& name = rewriter_.from().input_of(weight)->name;
    const bool transposed = said.layout.transposed;
    const auto kept = copies_.find(weight);
    if (options_.weight_copy == WeightCopy::w_only && kept != copies_.end())
      return b_.laid_out(kept->second.front().value, transposed);
    const StateUse use = transposed ? StateUse::weight_quantized_t : StateUse::weight_quantized;
    const TensorType type{.dtype = said.dtype,
                          .shape = rewriter_.from().type(weight).shape,
                          .granularity = said.granularity,
                          .layout = said.layout};
    const Copy copy{b_.state(use, name, type), attrs};
    copies_[weight].push_back(copy);
    return copy.value;
  }

  // What is kept, from the parameters: one scale for a group.
  void refresh_copies() {
    for (const LinearGroup& group : groups_.all()) {
      if (!keeps_copies(group)) continue;
      b_.tag = Tag{.layer = -1, .role = Role::update, .origin = group.name};
      if (predicts()) {
        if (!keeps_codes(options_.weight_copy)) continue;
        const ValueId scale = scale_of(group, {group.weights[0], Kind::w, group.tensor_weight()});
        for (const ValueId weight : group.weights) refresh(copies_.at(weight), weight, scale);
        continue;
      }
      const auto home = scales_.find({group.weights[0], Kind::w, group.tensor_weight().dtype});
      if (home == scales_.end()) continue;  // no GEMM reads them so
      const auto amax = b_.emit(OpCode::amax, NoAttrs{}, rewriter_.map(group.weights));
      const AmaxScaleAttrs attrs{.target = group.tensor_weight().target};
      const ValueId scale = b_.emit1(OpCode::quant_scale, attrs, {amax[AmaxOp::amax]});
      new_outputs_.emplace_back(scale, home->second);
      if (!keeps_codes(options_.weight_copy)) continue;
      for (const ValueId weight : group.weights) refresh(copies_.at(weight), weight, scale);
    }
  }

  void refresh(const std::vector<Copy>& copies, ValueId weight, ValueId scale) {
    const auto is_transposed = [&](const Copy& copy) {
      return b_.type(copy.value).layout.transposed;
    };
    ResultTypes types;
    for (const Copy& copy : copies) types.emplace_back(b_.type(copy.value));
    if (is_transposed(copies[0])) std::ranges::reverse(types);
    const bool both = copies.size() == 2;
    const auto codes = b_.emit_typed(both ? OpCode::quantize_both : OpCode::quantize,
                                     copies[0].attrs, {rewriter_.map(weight), scale}, types);
    for (const Copy& copy : copies)
      new_outputs_.emplace_back(codes[both && is_transposed(copy) ? 1 : 0], copy.value);
  }

  bool trains() const {
    const auto& groups = groups_.all();
    return std::any_of(groups.begin(), groups.end(),
                       [](const LinearGroup& g) { return !g.backward.empty(); });
  }

  Rewriter rewriter_;
  Builder& b_;
  const LinearGroups& groups_;
  const QuantizeLinearsOptions& options_;
  OperandScales scale_maker_;
  std::map<std::tuple<ValueId, Kind, Dtype>, ValueId> scales_;
  std::map<std::tuple<ValueId, Kind, Dtype, bool>, ValueId> codes_;
  std::map<std::tuple<ValueId, Kind, Dtype, Granularity::Kind>, Blocks> blocks_;
  std::map<ValueId, std::vector<Copy>> copies_;  // by weight
  std::map<ValueIds, ValueId> maxima_;
  ValueIds flags_;
  std::vector<std::pair<ValueId, ValueId>> new_outputs_;  // a value, and the state that it updates
};

Graph quantized(const Graph& graph, const QuantizeLinearsOptions& options) {
  const LinearGroups groups(graph, options.formats, options.overrides);
  return LinearQuantizer(graph, groups, options).run();
}

}  // namespace

Graph quantize_linears(const Graph& graph, const QuantizeLinearsOptions& options) {
  CHECK(graph.phase == Phase::typed);
  // Scales that are known wait for no other member's gradient.
  if (!options.predicted.empty() || options.scaling == Scaling::stored)
    return quantized(graph, options);
  return quantized(
      wait_for_group_gradients(graph, LinearGroups(graph, options.formats, options.overrides)),
      options);
}

}  // namespace octet
