// unit_scaling: bf16 (or FP16, without loss scaling) of a model whose values and gradients are near
// 1 by constant factors (passes/scalify/unit_scaling.h). The step measures nothing.
#include "passes/scalify/unit_scaling.h"

#include "ir/op_def.h"
#include "passes/precision/list.h"

namespace octet {
namespace {

// A sum that a factor makes a parameter's gradient of is not rounded before it.
Graph widen_sums(Graph typed) {
  for (const GraphOutput& output : typed.outputs) {
    const Node* rescale = typed.producer(output.value, OpCode::rescale);
    if (rescale == nullptr || !is_gradient_name(output.name)) continue;
    const ValueId sum = rescale->in(Rescale::x);
    const Node* producer = typed.producer(sum);
    if (producer != nullptr && is_norm_gradient(producer->op))
      typed.value(sum).type.dtype = Dtype::f32;
  }
  return typed;
}

Graph apply(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  return widen_sums(apply_types(recipe, unit_scale(graph, options.trained_seq), options));
}

}  // namespace

const Recipe kUnitScalingRecipe = {
    .name = "unit_scaling",
    .help = "BF16 of a model with unit variances by constant factors (u-muP)",
    .unit_scales = true,
    .apply = apply};

}  // namespace octet
