// Runs a graph through a plan on the CPU, and compares results value by value.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends/cpu/backend.h"
#include "ir/builder.h"
#include "ir/print.h"
#include "op_cases/op_cases.h"
#include "plan/plan.h"
#include "plan/row_unavailable.h"
#include "runtime/executor.h"

namespace octet::fusion {

using reference::Tensors;

inline cpu::Backend& fast_backend() {
  constexpr int kThreads = 3;
  static cpu::Backend backend = cpu::make_backend(kThreads, cpu::detect_isa());
  return backend;
}
inline cpu::Backend& scalar_backend() {
  static cpu::Backend backend = cpu::make_backend(1, cpu::Isa::scalar);
  return backend;
}

// The nodes of a plan that run on reference kernels, but for those of `allowed`.
inline std::string reference_nodes(const Plan& plan, std::initializer_list<OpCode> allowed = {}) {
  std::string found;
  for (const PlanStep& step : plan.steps) {
    const Node& node = plan.graph.node(step.node);
    const bool pass = std::find(allowed.begin(), allowed.end(), node.op) != allowed.end();
    if (step.kernel.reference && !pass) found += step.kernel.name + "\n";
  }
  return found;
}

inline void poison(Arenas& arenas) {
  // One as large as an arena would take longer to make than to copy.
  static const std::vector<std::byte> ones(size_t{1} << 20, std::byte{0xFF});
  for (int arena = 0; arena < kArenaCount; ++arena) {
    const auto kind = static_cast<Arena>(arena);
    for (int64_t at = 0, n = 0; at < arenas.bytes(kind); at += n) {
      n = std::min(std::ssize(ones), arenas.bytes(kind) - at);
      arenas.device().copy_in(arenas.arena(kind) + at, ones.data(), n);
    }
  }
}

// All memory is poisoned before the inputs are written.
inline Tensors plan_and_run(const Graph& graph, const Tensors& inputs, Backend& backend) {
  Layout layout;
  layout.add_inputs(graph);
  const Plan plan = make_plan(graph, layout, *backend.catalogue);
  if (&backend == &fast_backend()) {
    EXPECT_EQ(reference_nodes(plan), "") << print(graph);
  }
  Arenas arenas(*backend.device, plan.arena_bytes);
  poison(arenas);
  BoundPlan bound(plan, *backend.catalogue, arenas);
  for (const GraphInput& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
    reference::store(type.dtype, inputs.at(input.name), bytes.data());
    bound.write_input(input.name, bytes.data(), type.n_bytes());
  }
  bound.run();
  Tensors outputs;
  for (const GraphOutput& output : graph.outputs) {
    const TensorType& type = graph.type(output.value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
    bound.read_output(output.name, bytes.data(), type.n_bytes());
    std::vector<double>& values = outputs[output.name];
    values.resize(static_cast<size_t>(type.n_stored()));
    reference::load(type.dtype, bytes.data(), values);
  }
  return outputs;
}

// Without rows that the device's libraries refuse after all, as programs run.
inline Tensors run_plan(const Graph& graph, const Tensors& inputs, Backend& backend) {
  Tensors outputs;
  bind_available_rows(*backend.catalogue, [&] { outputs = plan_and_run(graph, inputs, backend); });
  return outputs;
}

// The graph of one node with the node replaced by its decomposition, one level deep. Outputs keep
// names and dtypes.
inline Graph decomposed_once(const Graph& graph) {
  Graph parts;
  parts.phase = graph.phase;
  Builder builder(parts);
  for (const GraphInput& input : graph.inputs) {
    builder.input(input.kind, input.name, graph.type(input.value));
  }
  const Node& node = graph.nodes[0];
  const auto results = op_def(node.op).decompose(builder, node, result_types(graph, node));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != kNoValue) builder.output(op_cases::output_name(i), results[i]);
  }
  return parts;
}

inline bool same_value(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || a == b;
}

inline void expect_same(const Tensors& actual, const Tensors& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    const auto& other = actual.at(name);
    ASSERT_EQ(other.size(), values.size()) << what << " " << name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(same_value(other[i], values[i]))
          << what << " " << name << "[" << i << "]: " << other[i] << ", expected " << values[i];
    }
  }
}

}  // namespace octet::fusion
