// Every fast kernel of the CPU against the reference's, over the op cases, as near as ops promise.
#include <set>

#include "plan/kernel_row.h"
#include "run.h"
#include "train/prove_kernels.h"

namespace octet::fusion {
namespace {

using op_cases::OpCase;

void expect_near(const Graph& graph, const Tensors& actual, const Tensors& expected,
                 Closeness close, const std::string& what) {
  for (const GraphOutput& output : graph.outputs) {
    const auto& got = actual.at(output.name);
    const auto& want = expected.at(output.name);
    double largest = 0;
    for (const double w : want)
      largest = std::isfinite(w) ? std::max(largest, std::abs(w)) : largest;
    const Dtype dtype = graph.type(output.value).dtype;
    const double relative = relative_tolerance(graph) * (0.1 + largest);
    int64_t different = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (same_value(got[i], want[i])) continue;  // NaN too
      ++different;
      EXPECT_LE(std::abs(got[i] - want[i]), tolerance_of(close, dtype, want[i], relative))
          << what << " " << output.name << "[" << i << "]: " << got[i] << ", not " << want[i];
    }
    if (is_quantized(dtype)) {
      EXPECT_LE(different, 1 + std::ssize(want) / 1000) << what;
    }
  }
}

TEST(parity, fast_kernels_equal_reference_kernels) {
  std::set<const KernelRow*> compared;
  for (const OpCase& c : op_cases::op_cases()) {
    // They refuse tokens that a table has not.
    if (c.op == OpCode::embedding || c.op == OpCode::embedding_grad) continue;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
      const Graph graph = case_graph(c, dtype);
      const auto choice = fast_backend().catalogue->choose(graph, graph.nodes[0]);
      if (!choice || choice->row->facts.reference) continue;
      const Tensors inputs = case_inputs(c, 11);
      const std::string what = fmt::format("{} {}", c.name, dtype_name(dtype));
      expect_near(graph, run_plan(graph, inputs, fast_backend()),
                  run_plan(graph, inputs, scalar_backend()), op_def(c.op).closeness, what);
      compared.insert(choice->row);
    }
  }
  std::cout << compared.size() << " rows of kernels\n";
  if (cpu::detect_isa() != cpu::Isa::scalar) {
    EXPECT_GT(compared.size(), 60u);
  }
}

}  // namespace
}  // namespace octet::fusion
