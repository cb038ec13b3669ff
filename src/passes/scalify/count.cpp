#include "passes/scalify/count.h"

#include <fmt/format.h>

#include "ir/op_def.h"

namespace octet {
namespace {

// The inverse of a norm's power of two.
bool is_measured(const Graph& graph, ValueId factor) {
  const Node* inverse = graph.producer(factor, OpCode::div);
  return inverse != nullptr &&
         graph.producer(inverse->in(Binary::b), OpCode::power_of_two) != nullptr;
}

}  // namespace

RescaleCounts count_rescales(const Graph& graph) {
  RescaleCounts counts;
  for (const Node& node : graph.nodes) {
    if (node.op == OpCode::rescale) {
      const ValueId factor = node.in(Rescale::factor);
      ++(filled_with(graph, factor)   ? counts.constant
         : is_measured(graph, factor) ? counts.measured
                                      : counts.at_run_time);
    } else if (node.op == OpCode::axpby) {
      const bool is_sum = filled_with(graph, node.in(Axpby::factor_a)) == 1 &&
                          filled_with(graph, node.in(Axpby::factor_b)) == 1;
      counts.folded += is_sum ? 0 : 1;
    } else if (node.op == OpCode::gemm) {
      const bool has_factor = node.in(Gemm::scale_a) != kNoValue;
      counts.folded += has_factor && !reads_quantized(graph, node) ? 1 : 0;
    }
  }
  return counts;
}

std::string rescales_text(const RescaleCounts& counts) {
  if (counts == RescaleCounts{}) return "";
  return fmt::format(
      "rescales: {} measured, {} by factors of run time, {} by constants; {} in GEMMs and sums\n",
      counts.measured, counts.at_run_time, counts.constant, counts.folded);
}

}  // namespace octet
