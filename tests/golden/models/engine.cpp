#include "engine.h"

#include "backends/cpu/backend.h"
#include "passes/precision/recipe.h"
#include "plan/plan.h"
#include "runtime/executor.h"

namespace octet::golden {
namespace {

using reference::Tensors;

Tensors run_reference(const Graph& graph, const Tensors& inputs) {
  Tensors wanted;
  for (const GraphInput& input : graph.inputs) wanted[input.name] = inputs.at(input.name);
  return reference::interpret(graph, wanted);
}

void write(BoundPlan& plan, const std::string& name, const std::vector<double>& values) {
  const TensorType& type = plan.plan().graph.type(plan.plan().graph.find_input(name)->value);
  std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
  reference::store(type.dtype, values, bytes.data());
  plan.write_input(name, bytes.data(), type.n_bytes());
}

std::vector<double> read(const BoundPlan& plan, const GraphOutput& output) {
  const TensorType& type = plan.plan().graph.type(output.value);
  std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
  plan.read_output(output.name, bytes.data(), type.n_bytes());
  std::vector<double> values(static_cast<size_t>(type.n_stored()));
  reference::load(type.dtype, bytes.data(), values);
  return values;
}

Tensors run_cpu(const Graph& graph, const Tensors& inputs) {
  constexpr int kThreads = 3;
  static cpu::Backend backend = cpu::make_backend(kThreads, cpu::detect_isa());
  const Recipe& fp32 = find_recipe("fp32");
  const Graph typed = graph.phase == Phase::logical ? fp32.apply(fp32, graph, {}) : graph;
  Layout layout;
  layout.add_inputs(typed);
  const Plan plan = make_plan(typed, layout, *backend.catalogue);
  Arenas arenas(*backend.device, plan.arena_bytes);
  BoundPlan bound(plan, *backend.catalogue, arenas);
  for (const GraphInput& input : plan.graph.inputs) write(bound, input.name, inputs.at(input.name));
  bound.run();
  Tensors outputs;
  for (const GraphOutput& output : plan.graph.outputs) outputs[output.name] = read(bound, output);
  return outputs;
}

}  // namespace

const Engine kReference = {.name = "reference", .run = run_reference};
const Engine kCpu = {.name = "cpu", .run = run_cpu};

}  // namespace octet::golden
