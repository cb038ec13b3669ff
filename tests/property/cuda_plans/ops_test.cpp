// Which ops the GPU has kernels for: all of the op cases, in every high-precision type, but for an
// explicit list of those that run as other ops, and of those that one rank alone never has.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "backends/cuda/backend.h"
#include "compile/lower.h"
#include "op_cases/op_cases.h"
#include "plan/backend.h"
#include "plan/views.h"

namespace octet::cuda_plans_ops_test {
namespace {

bool has_kernels(const Graph& graph, const Catalogue& catalogue) {
  return std::ranges::all_of(graph.nodes, [&](const Node& node) {
    return is_view(graph, node) || catalogue.choose(graph, node).has_value();
  });
}

TEST(CudaOps, every_op_case_has_kernels_in_every_wide_type) {
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  std::set<std::string> as_others, missing;
  for (const op_cases::OpCase& c : op_cases::op_cases()) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
      Graph graph = op_cases::case_graph(c, dtype);
      if (has_kernels(graph, *gpu.catalogue)) continue;
      graph.phase = Phase::lowered;
      const bool runs = has_kernels(lower(graph, *gpu.catalogue), *gpu.catalogue);
      (runs ? as_others : missing).emplace(op_def(c.op).name);
      if (!runs) std::cout << c.name << " " << dtype_name(dtype) << "\n";
    }
  }
  // Attention is here by the cases whose scores are capped.
  EXPECT_EQ(
      fmt::format("{}", fmt::join(as_others, " ")),
      "argmin attention attention_grad cast_in convolution custom_scale data_scale delayed_rescale "
      "dynamic_rescale gated_act_grad_quantize gated_act_quantize gelu_quantize "
      "gemm integer_pow is_finite rebalance reduce_min reduce_prod reduce_window "
      "rescale reverse "
      "rms_norm set_scale stop_scaling");
  EXPECT_EQ(fmt::format("{}", fmt::join(missing, " ")), "all_gather all_reduce reduce_scatter");
}

}  // namespace
}  // namespace octet::cuda_plans_ops_test
