// Every kernel of the GPU against the CPU's reference kernels, over the op cases: quantizers and
// moves in all bits, codes of computed values but for roundings, the rest within f32 sums.
#include <map>

#include "closeness.h"
#include "table.h"

namespace octet::fusion {
namespace {

using op_cases::OpCase;

// How many values of an output are outside the bound, and the first of them as text.
struct Mismatch {
  int64_t count = 0;
  std::string first;
};

Mismatch compare(const Graph& graph, const Tensors& actual, const Tensors& expected,
                 Closeness close) {
  Mismatch result;
  for (const GraphOutput& output : graph.outputs) {
    const auto& got = actual.at(output.name);
    const auto& want = expected.at(output.name);
    double largest = 0;
    for (const double w : want) largest = std::max(largest, std::isfinite(w) ? std::abs(w) : 0);
    const Dtype dtype = graph.type(output.value).dtype;
    const double floor = floor_of(graph) * (0.1 + largest);
    for (size_t i = 0; i < want.size(); ++i) {
      const bool same = same_value(got[i], want[i]);
      const bool near =
          same || (close != Closeness::same &&
                   std::abs(got[i] - want[i]) <= bound_of(close, dtype, want[i], floor));
      if (near) continue;
      if (result.count++ == 0)
        result.first = fmt::format("{}[{}] {} is {}, expected {}", output.name, i,
                                   dtype_name(dtype), got[i], want[i]);
    }
  }
  return result;
}

// True if the GPU has a kernel for the case's node with these types.
bool offered(const Graph& graph, Backend& gpu) {
  return gpu.catalogue->choose(graph, graph.nodes[0]).has_value();
}

TEST(parity, gpu_kernels_equal_reference_kernels) {
  OCTET_GPU_OR_SKIP(gpu);
  std::map<std::string, int> without;
  int n_cases = 0, n_wrong = 0;
  for (const OpCase& c : op_cases::op_cases()) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
      const Graph graph = case_graph(c, dtype);
      if (!offered(graph, *gpu)) {
        ++without[std::string(op_def(c.op).name)];
        continue;
      }
      const std::string what = c.name + " " + std::string(dtype_name(dtype));
      try {
        const Tensors inputs = case_inputs(c, 11);
        const Tensors fast = run_plan(graph, inputs, *gpu);
        const Tensors slow = run_reference(graph, inputs);
        const Mismatch mismatch = compare(graph, fast, slow, op_def(c.op).closeness);
        ++n_cases;
        if (mismatch.count == 0) continue;
        ++n_wrong;
        ADD_FAILURE() << what << ": " << mismatch.count << " values, first " << mismatch.first;
      } catch (const Error& error) {
        ++n_wrong;
        ADD_FAILURE() << what << ": " << error.what();
      }
    }
  }
  std::string list;
  for (const auto& [name, count] : without) list += fmt::format(" {} x {}", name, count);
  std::cout << n_cases << " cases on the GPU, " << n_wrong << " wrong; without kernel:" << list
            << "\n";
  EXPECT_GT(n_cases, 0);
  // On an emulated device the kernels were those that the plan names, too.
  if (const auto* watched = dynamic_cast<const WatchedCatalogue*>(gpu->catalogue.get()))
    EXPECT_GT(watched->n_compared(), n_cases * 9 / 10);
}

}  // namespace
}  // namespace octet::fusion
