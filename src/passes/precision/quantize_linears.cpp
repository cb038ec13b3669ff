#include "passes/precision/quantize_linears.h"

#include <algorithm>

#include "base/error.h"

namespace octet {
namespace {

class LinearQuantizer {
 public:
  LinearQuantizer(const Graph& graph, const LinearGroups& groups,
                  const QuantizeLinearsOptions& options)
      : rewriter_(graph),
        groups_(groups),
        options_(options),
        kept_(rewriter_, groups, options.kept),
        scales_(rewriter_, groups, options.scales, kept_),
        quantized_(rewriter_, scales_, kept_, options.quantizers) {}

  Graph run() {
    const Graph& from = rewriter_.from();
    for (const Node& node : from.nodes) {
      const LinearGroup* group = groups_.of(from.id(node));
      if (group == nullptr)
        rewriter_.copy(node);
      else if (group->is_depthwise)
        round_factors(node, *group);
      else
        quantize_gemm(node, *group);
    }
    const StateUpdates kept = groups_.has_backward() ? kept_.refresh() : StateUpdates{};
    Graph result = rewriter_.finish();
    Builder builder(result);
    for (const auto& [state, value] : scales_.updates()) builder.next(state, value);
    for (const auto& [state, value] : kept) builder.next(state, value);
    scales_.add_flag(builder);
    return result;
  }

 private:
  void quantize_gemm(const Node& node, const LinearGroup& group) {
    const LinearOperand a = groups_.operand(group, node, Gemm::a),
                        b = groups_.operand(group, node, Gemm::b);
    rewriter_.builder().tag = node.tag;
    if (!a.format().quantized || !b.format().quantized) return mixed_gemm(node, a, b);
    const QuantizedOperand q_a = quantized_.of(a), q_b = quantized_.of(b);
    if (a.role == GemmRole::forward) make_backward_x(a);
    ValueIds operands = rewriter_.map(node.operands);
    operands.resize(op_def(OpCode::gemm).operands.size(), kNoValue);
    ValueId& scale_a = operands[Gemm::scale_a];
    scale_a = scale_a == kNoValue ? q_a.scale : scales_.product(q_a.scale, scale_a);
    operands[Gemm::scale_b] = q_b.scale;
    operands[Gemm::a] = q_a.q;
    operands[Gemm::b] = q_b.q;
    GemmAttrs attrs = LinearGroups::gemm(node);
    attrs.tf32 = false;  // of f32 factors
    attrs.fast_accumulate = accumulates_fast(node, attrs);
    rewriter_.replace(node, OpCode::gemm, attrs, operands);
  }

  // A depthwise convolution of what its operands' codes stand for.
  void round_factors(const Node& node, const LinearGroup& group) {
    rewriter_.builder().tag = node.tag;
    ValueIds operands;
    for (const SlotId factor : {Binary::a, Binary::b}) {
      const LinearOperand operand = LinearGroups::depthwise_operand(group, node, factor);
      operands.push_back(operand.format().quantized ? rounded(operand)
                                                    : rewriter_.map(operand.value));
    }
    rewriter_.replace(node, node.op, node.attrs, operands);
  }

  // In the type that it had.
  ValueId rounded(const LinearOperand& operand) {
    const bool is_other =
        !(operand.format() == operand.group.format(operand.kind, GemmRole::forward));
    const auto [at, is_new] =
        rounded_.try_emplace({operand.value, operand.kind, is_other}, kNoValue);
    if (!is_new) return at->second;
    const ValueId value = quantized_.dequantized(operand);
    const Dtype dtype = rewriter_.from().type(operand.value).dtype;
    Builder& b = rewriter_.builder();
    return at->second = b.type(value).dtype == dtype ? value : b.cast(value, dtype);
  }

  bool accumulates_fast(const Node& node, const GemmAttrs& attrs) const {
    if (const auto sums = groups_.sums(node)) return *sums == GemmSums::fast;
    const int64_t k = read_shape(rewriter_.from().type(node.in(Gemm::a)), attrs.trans_a)[1];
    return octet::accumulates_fast(options_.fast_accumulate, options_.accumulation, attrs.role, k);
  }

  // One factor is not quantized, or neither is.
  void mixed_gemm(const Node& node, const LinearOperand& a, const LinearOperand& b) {
    ValueIds operands = rewriter_.map(node.operands);
    if (a.format().quantized) operands[Gemm::a] = quantized_.dequantized(a);
    if (b.format().quantized) operands[Gemm::b] = quantized_.dequantized(b);
    rewriter_.replace(node, OpCode::gemm, node.attrs, operands);
  }

  // Makes what wgrad reads of x, where the forward GEMM reads it otherwise: the data if they are
  // kept, and in either case the one scale.
  void make_backward_x(LinearOperand x) {
    const auto reads_x = [&](NodeId n) {
      return LinearGroups::gemm(rewriter_.from().node(n)).role == GemmRole::wgrad;
    };
    x.role = GemmRole::wgrad;
    x.axis = 0;
    const OperandFormat& format = x.format();
    const bool is_read = x.kind == OperandKind::x && format.quantized &&
                         std::ranges::any_of(x.group.backward, reads_x);
    const bool is_other = format.is_block() || x.group.formats.backward_x;
    if (!is_read || !is_other) return;
    if (kept_.keeps_x(format))
      quantized_.of(x);
    else if (!format.is_block())
      scales_.of(x);
  }

  Rewriter rewriter_;
  const LinearGroups& groups_;
  const QuantizeLinearsOptions& options_;
  KeptOperands kept_;
  OperandScales scales_;
  QuantizedOperands quantized_;
  // Rounded values of depthwise convolutions, by what is rounded and whether it is as the backward
  // pass alone reads it.
  std::map<std::tuple<ValueId, OperandKind, bool>, ValueId> rounded_;
};

}  // namespace

Graph quantize_linears(const Graph& graph, const QuantizeLinearsOptions& options) {
  CHECK(graph.phase == Phase::typed);
  // Scales are predicted of GEMMs alone.
  const Depthwise depthwise =
      options.scales.predicted.empty() ? Depthwise::grouped : Depthwise::left_out;
  const auto groups = [&](const Graph& of) {
    return LinearGroups(of, options.formats, options.overrides, options.block_scale, depthwise);
  };
  const auto quantized = [&](const Graph& of) {
    return LinearQuantizer(of, groups(of), options).run();
  };
  if (options.scales.are_known()) return quantized(graph);
  return quantized(wait_for_group_gradients(graph, groups(graph)));
}

}  // namespace octet
