#include "bench/kernels_bench.h"

#include <set>

#include "bench/node_runner.h"
#include "ir/print.h"

namespace octet {
namespace {

// Equal for launches that do the same work: the node's line without its place in the graph. Updates
// differ in numbers only.
std::string launch_key(const Graph& graph, const Node& node, const KernelChoice& kernel) {
  const std::string key = kernel.name + " " + shape_text(graph, node);
  if (node.tag.role == Role::update) return key;
  Node bare = node;
  bare.tag = {};
  for (ValueId& id : bare.operands) id = id == kNoValue ? kNoValue : 0;
  for (ValueId& id : bare.results) id = id == kNoValue ? kNoValue : 0;
  return key + " " + print(graph, bare);
}

}  // namespace

BenchRows ceiling_rows(const BenchMachine& machine, const Ceilings& ceilings) {
  const char* size = machine.is_gpu() ? "8192 x 8192 x 8192" : "2048 x 2048 x 2048";
  BenchRow memory =
      machine.row("memory", machine.is_gpu() ? "1 GiB, copied" : "256 MiB, copied or in place");
  memory.value = ceilings.bytes_per_s / 1e9;
  memory.unit = "GB/s read and written";
  BenchRow f32 = machine.row("gemm f32", size);
  f32.value = ceilings.f32_flops_per_s / 1e9;
  f32.unit = "GFLOP/s";
  BenchRow bf16 = machine.row("gemm bf16", f32.shape);
  bf16.value = ceilings.narrow_flops_per_s / 1e9;
  bf16.unit = f32.unit;
  bf16.baseline = f32.name;
  bf16.ratio = bf16.value / f32.value;
  if (ceilings.code_flops_per_s == 0) return {memory, f32, bf16};
  BenchRow e4m3 = machine.row("gemm e4m3", f32.shape);
  e4m3.value = ceilings.code_flops_per_s / 1e9;
  e4m3.unit = f32.unit;
  e4m3.baseline = bf16.name;
  e4m3.ratio = e4m3.value / bf16.value;
  return {memory, f32, bf16, e4m3};
}

BenchRows bench_step_kernels(const BenchMachine& machine, const ProgramOptions& options,
                             const Ceilings& ceilings) {
  Program program(options, *machine.backend.catalogue);
  BenchRows rows;
  std::set<std::string> seen;
  for (const std::string_view name : program.train_functions()) {
    const Plan& plan = program.plan(name);
    for (const PlanStep& step : plan.steps) {
      const Node& node = plan.graph.nodes[static_cast<size_t>(step.node)];
      if (!seen.insert(launch_key(plan.graph, node, step.kernel)).second) continue;
      NodeRunner runner(plan.graph, node, *machine.backend.device, *machine.backend.catalogue);
      BenchRow row = machine.row(step.kernel.name, shape_text(plan.graph, node));
      row.value = median_ms([&] { runner.run(); }, {.device = machine.backend.device.get()});
      row.unit = "ms";
      row.floor = 1000 * floor_seconds(plan.graph, node, ceilings);
      row.share = row.floor / row.value;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace octet
