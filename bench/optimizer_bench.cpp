#include "bench/optimizer_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "bench/node_runner.h"
#include "compile/expand_updates.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "optim/optimizer.h"
#include "train/run_setup.h"

namespace octet {
namespace {

struct States {
  const char* moments;  // optim.state_m and state_v
  const char* master;   // optim.master
  Dtype weight;         // and of the gradient
};

// The first is the baseline.
constexpr States kStates[] = {
    {"f32", "fp32", Dtype::f32},
    {"f32", "bf16_remainder", Dtype::bf16},
    {"e4m3", "bf16_remainder", Dtype::bf16},
    {"e4m3+x", "bf16_remainder", Dtype::bf16},
    {"e4m3+x", "bf16_sr", Dtype::bf16},
};

std::string name_of(const States& states) {
  return fmt::format("adamw {} moments, {} weights", states.moments, states.master);
}

// The update of one parameter as training builds it.
Graph update_graph(const States& states, int64_t n_params) {
  const RunConfig config = parse_config("recipe: bf16\n", "bench",
                                        {fmt::format("optim.state_m={}", states.moments),
                                         fmt::format("optim.state_v={}", states.moments),
                                         fmt::format("optim.master={}", states.master)})
                               .config;
  const ModelSpec spec = model_from_config(posix_files(), config);
  Graph graph;
  graph.phase = Phase::typed;
  Builder builder(graph);
  const TensorType type{.dtype = states.weight, .shape = {n_params}};
  const ValueId weight = builder.input(InputKind::parameter, "w", type);
  const ValueId gradient = builder.input(InputKind::batch, "g", type);
  const OptimPolicy policy = program_options(config, spec).optim;
  build_update(builder, {{.parameter = "w", .weight = weight, .gradient = gradient}}, policy);
  return expand_updates(graph, policy);
}

BenchRow bench_states(const BenchMachine& machine, const States& states, int64_t n_params,
                      double copy_rate) {
  const Graph graph = update_graph(states, n_params);
  const auto node = std::ranges::find(graph.nodes, OpCode::adamw_step, &Node::op);
  NodeRunner runner(graph, *node, *machine.backend.device, *machine.backend.catalogue);
  const double bytes = cost_of(graph, *node).bytes;
  const auto n = static_cast<double>(n_params);
  BenchRow row = machine.row(name_of(states),
                             fmt::format("{} parameters, {:.4g} bytes each", n_params, bytes / n));
  row.value =
      n / (1e6 * median_ms([&] { runner.run(); }, {.device = machine.backend.device.get()}));
  row.unit = "G parameters/s";
  row.floor = n * copy_rate / (bytes * 1e9);
  row.share = row.value / row.floor;
  return row;
}

}  // namespace

BenchRows bench_optimizer(const BenchMachine& machine, int64_t n_params) {
  BenchRow copy = machine.row("memcpy", machine.is_gpu() ? "1 GiB to 1 GiB" : "256 MiB to 256 MiB");
  const double copy_rate = copy_bytes_per_s(machine);
  copy.value = copy_rate / 1e9;
  copy.unit = "GB/s read and written";
  BenchRows rows = {copy};
  for (const States& states : kStates) {
    try {
      rows.push_back(bench_states(machine, states, n_params, copy_rate));
    } catch (const Error& error) {
      if (rows.size() == 1 || error.code() == ErrorCode::device) throw;
      machine.log.warning("bench: {} left out: {}", name_of(states), error.what());
      continue;
    }
    rows.back().baseline = rows[1].name;
    rows.back().ratio = rows.back().value / rows[1].value;
  }
  return rows;
}

}  // namespace octet
