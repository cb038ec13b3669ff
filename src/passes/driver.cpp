#include "passes/driver.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/error.h"
#include "ir/ops/quantize_layers.h"
#include "ir/ops/weight_codes.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/lower/chunk_head.h"
#include "passes/lower/fuse.h"
#include "passes/memory/recompute.h"
#include "passes/parallel/shard_updates.h"
#include "passes/precision/quantize_linears.h"
#include "passes/precision/recipe.h"
#include "passes/precision/store_groups.h"
#include "passes/rewrite/simplify.h"

namespace octet {
namespace {

const LinearFormats& fp8_formats() {
  return find_recipe("fp8_linear").linears;
}

std::vector<Pass> parallel_passes(const ParallelOptions& parallel) {
  return {{.name = "gather_parameters",
           .run = [parallel](const Graph& g) { return gather_parameters(g, parallel); },
           .help = "cut parameters among ranks, and gather them before their readers",
           .wants = Phase::typed},
          {.name = "shard_updates",
           .run = [parallel](const Graph& g) { return shard_updates(g, parallel); },
           .help = "sum gradients over ranks, and update shards of states and weights",
           .wants = Phase::typed}};
}

Pass fuse_pass(std::string_view name, std::string_view help, const TakesForm& takes = {}) {
  return {.name = name,
          .run = [takes](const Graph& g) { return fuse(g, nullptr, takes); },
          .help = help,
          .wants = Phase::typed};
}

// A pass that fuses as targets want it whose GEMMs take the forms that others' do not.
Pass fuse_gemms(std::string_view name, std::string_view help,
                bool (*takes)(const Graph&, const Node&)) {
  return fuse_pass(name, help, [takes](const Graph& g, const Node& form) {
    return form.op == OpCode::gemm && takes(g, form);
  });
}

std::vector<Pass> fuse_passes() {
  return {
      fuse_pass("fuse", "replace nodes by the fused op whose decomposition they are"),
      fuse_pass("fuse_gradients",
                "fuse, as targets want it that quantize gradients where they are made",
                [](const Graph&, const Node& form) {
                  return form.op == OpCode::gated_act_grad_quantize;
                }),
      fuse_gemms("fuse_codes", "fuse, as targets want it whose GEMMs store E4M3",
                 [](const Graph&, const Node& gemm) { return gemm.in(Gemm::scale_y) != kNoValue; }),
      fuse_gemms("fuse_bias", "fuse, as targets want it whose GEMMs add their biases",
                 [](const Graph& g, const Node& gemm) {
                   const ValueId c = gemm.in(Gemm::c);
                   return c != kNoValue && is_bias_row(g.type(c));
                 }),
      fuse_pass("fuse_kept",
                "fuse, as targets want it whose activations keep their operands in groups",
                [](const Graph&, const Node& form) { return quantized_layer(form.op) != nullptr; }),
      fuse_gemms("fuse_few_rows",
                 "fuse, as targets want it whose GEMMs of few rows read codes and add residuals",
                 [](const Graph& g, const Node& gemm) {
                   return g.type(gemm.out(Gemm::y)).shape[0] <= 2 || reads_weight_codes(g, gemm);
                 })};
}

std::vector<Pass> make_list(const ParallelOptions& parallel) {
  std::vector<Pass> list = {
      {.name = "autodiff",
       .run = [](const Graph& g) { return autodiff(g); },
       .help = "append the gradients of output \"loss\"",
       .wants = Phase::logical},
      {.name = "simplify",
       .run = simplify,
       .help = "identities, padded pieces, common and dead nodes, until nothing changes"},
      {.name = "remove_identities", .run = remove_identities, .help = "drop what does nothing"},
      {.name = "merge_pads",
       .run = merge_pads,
       .help = "concatenate what is padded to the whole and added"},
      {.name = "merge_common",
       .run = merge_common,
       .help = "merge nodes that compute the same thing"},
      {.name = "remove_dead", .run = remove_dead, .help = "drop nodes that no output depends on"},
      {.name = "decompose",
       .run = decompose_all,
       .help = "replace every op by its decomposition, down to primitives"},
      {.name = "store_groups",
       .run = [](const Graph& g) { return store_groups(g); },
       .help = "keep inputs of norms and activations as E4M3 groups of 16 for the backward pass",
       .wants = Phase::typed,
       .effect = PassEffect::rounds},
      {.name = "store_and_read_groups",
       .run =
           [](const Graph& g) { return store_groups(g, {.forward_reads = ForwardReads::stored}); },
       .help = "the same, and the forward pass reads them",
       .wants = Phase::typed,
       .effect = PassEffect::rounds},
      {.name = "quantize_linears",
       .run = [](const Graph& g) { return quantize_linears(g, {.formats = fp8_formats()}); },
       .help = "the layers' GEMMs on E4M3 and E5M2 data with current scaling",
       .wants = Phase::typed,
       .effect = PassEffect::rounds},
      {.name = "recompute_cheap",
       .run = [](const Graph& g) { return recompute_cheap(g); },
       .help = "compute norms, activations and quantized data again in the backward pass"},
      {.name = "recompute_full",
       .run = [](const Graph& g) { return recompute(g, {.what = Recompute::full}); },
       .help = "compute each layer again from its input in the backward pass"},
      {.name = "chunk_head",
       .run = [](const Graph& g) { return chunk_head(g); },
       .help = "head and loss in chunks of rows, so that the logits never exist whole",
       .wants = Phase::typed},
  };
  std::ranges::move(fuse_passes(), std::back_inserter(list));
  std::ranges::move(parallel_passes(parallel), std::back_inserter(list));
  for (const Recipe* recipe : all_recipes()) {
    list.push_back({.name = recipe->name,
                    .run = [recipe](const Graph& g) { return recipe->apply(*recipe, g, {}); },
                    .help = recipe->help,
                    .wants = Phase::logical,
                    .effect = PassEffect::rounds});
  }
  return list;
}

const Pass& find_pass(std::span<const Pass> passes, const std::string& name) {
  const auto it =
      std::find_if(passes.begin(), passes.end(), [&](const Pass& p) { return p.name == name; });
  if (it != passes.end()) return *it;
  std::string known;
  for (const Pass& pass : passes)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", pass.name);
  throw Error(ErrorCode::invalid_argument, "[passes] expected one of {}, got '{}'", known, name);
}

}  // namespace

std::span<const Pass> all_passes() {
  static const std::vector<Pass> list = make_list({});
  return list;
}

Graph run_pass(const Pass& pass, const Graph& graph, PassLog* log) {
  if (pass.wants && *pass.wants != graph.phase) {
    throw Error(ErrorCode::invalid_argument, "[passes] {}: expected a graph in phase {}, got {}",
                pass.name, enum_name(*pass.wants), enum_name(graph.phase));
  }
  const auto began = std::chrono::steady_clock::now();
  Graph result = pass.run(graph);
  verify(result);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - began;
  if (log != nullptr)
    log->push_back({result.name, std::string(pass.name), graph.nodes.size(), result.nodes.size(),
                    time.count()});
  return result;
}

Graph run_passes(const Graph& graph, std::span<const Pass> passes, PassLog* log) {
  verify(graph);
  Graph current = graph;
  for (const Pass& pass : passes) current = run_pass(pass, current, log);
  return current;
}

Graph run_passes(const Graph& graph, const std::vector<std::string>& names,
                 const ParallelOptions& parallel) {
  const std::vector<Pass> known = make_list(parallel);
  std::vector<Pass> passes;
  for (const std::string& name : names) passes.push_back(find_pass(known, name));
  return run_passes(graph, passes);
}

}  // namespace octet
