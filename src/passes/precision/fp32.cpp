// fp32: everything in f32.
#include "passes/precision/list.h"

namespace octet {
namespace {

Graph apply(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  Graph typed = store_frozen(assign_types(graph, recipe.compute, Dtype::f32), options.frozen);
  for (Node& node : typed.nodes) {
    if (auto* gemm = std::get_if<GemmAttrs>(&node.attrs)) gemm->tf32 = options.tf32;
  }
  return typed;
}

}  // namespace

const Recipe kFp32Recipe = {
    .name = "fp32", .help = "everything in f32", .compute = Dtype::f32, .apply = apply};

}  // namespace octet
