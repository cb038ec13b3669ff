// Launches of a layer on the GPU, in order, with the bytes that each op must move: the middle one
// of three layers of the 7B shape, 4 x 2048 tokens, forward and backward. Made without a
// GPU. After a change of passes or recipes that is meant:
//   OCTET_UPDATE_GOLDEN=1 build/tests/octet_golden_all --gtest_filter='*LayerLaunches*'
// The last column names the row and the kernels that it launches; the others say what is done,
// whoever does it. That the module launches these is what emulated suites of gpu test
// (gpu/parity/watched_launches.h).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/backend.h"
#include "compile/program.h"
#include "config/load.h"
#include "golden/golden_text.h"
#include "infer/model_spec.h"
#include "ir/op_def.h"
#include "train/run_setup.h"

namespace octet::launches_test {
namespace {

constexpr int kLayer = 1;

// "rms_norm bf16 x f32 -> bf16, f32: vectors (norm_rows)".
std::string kernel_text(const KernelChoice& kernel) {
  if (kernel.launches.empty()) return kernel.name;
  return fmt::format("{} ({})", kernel.name, fmt::join(kernel.launches, ", "));
}

struct Total {
  int n_steps = 0;
  size_t n_launches = 0;
  double bytes = 0;
};

std::string total_line(const std::string& what, const Total& total) {
  return fmt::format("{:8} {:3} steps {:3} kernels {:9.1f} MB\n", what, total.n_steps,
                     total.n_launches, total.bytes / 1e6);
}

// By name, since their order is the op's own affair; what is absent is not told.
std::string dtypes_of(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<std::string_view> names;
  for (const ValueId id : values) {
    if (id != kNoValue) names.push_back(dtype_name(graph.type(id).dtype));
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

// One line a step: role, MB, module, dtypes of operands and of results, row and kernels.
std::string launches_of(const std::string& recipe, const std::string& set) {
  const Backend backend = cuda::make_plan_backend({.n_threads = 1});
  std::vector<std::string> sets = {"model.layers=3", "recipe.base=" + recipe};
  if (!set.empty()) sets.push_back(set);
  const RunConfig config = load_config(OCTET_SOURCE_DIR "/recipes/llama-2-7b.yaml", sets).config;
  Program program(program_options(config, model_from_config(posix_files(), config)),
                  *backend.catalogue);
  const Plan& plan = program.plan(function::step);
  std::string text;
  std::map<Role, Total> totals;
  Total all;
  for (const PlanStep& step : plan.steps) {
    const Node& node = plan.graph.node(step.node);
    if (node.tag.layer != kLayer) continue;
    const double bytes = cost_of(plan.graph, node).bytes;
    text += fmt::format("{:8} {:7.1f} | {:24} | {:28} -> {:24} | {}\n", enum_name(node.tag.role),
                        bytes / 1e6, node.tag.origin, dtypes_of(plan.graph, node.operands),
                        dtypes_of(plan.graph, node.results), kernel_text(step.kernel));
    for (Total* total : {&totals[node.tag.role], &all}) {
      ++total->n_steps;
      total->n_launches += step.kernel.launches.size();
      total->bytes += bytes;
    }
  }
  text += "\n";
  for (const auto& [role, total] : totals) text += total_line(std::string(enum_name(role)), total);
  return text + total_line("layer", all);
}

class LayerLaunches : public testing::TestWithParam<const char*> {};

TEST_P(LayerLaunches, are_the_recorded_ones) {
  test::expect_golden(std::string("launches/") + GetParam() + ".txt", launches_of(GetParam(), ""));
}

INSTANTIATE_TEST_SUITE_P(recipes, LayerLaunches,
                         testing::Values("bf16", "fp8_linear", "coat", "coat-fast", "hif8"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(LayerLaunches, of_a_forward_pass_that_reads_stored_groups_are_the_recorded_ones) {
  test::expect_golden("launches/coat-stored.txt",
                      launches_of("coat", "recipe.forward_reads=stored"));
}

}  // namespace
}  // namespace octet::launches_test
