#include "compile/budget.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "compile/memory_advice.h"
#include "passes/lower/chunk_head.h"
#include "plan/report.h"

namespace octet {
namespace {

// From what costs no time to what saves most. The head stays whole where the run chose the rest.
std::vector<ProgramOptions> candidates(const ProgramOptions& options) {
  std::vector<ProgramOptions> list = {options};
  if (options.recompute) return list;
  const int64_t chunk = ChunkHeadOptions{}.chunk_bytes;
  const std::pair<Recompute, int64_t> choices[] = {
      {Recompute::cheap, 0}, {Recompute::cheap, chunk}, {Recompute::full, chunk}};
  for (const auto& [recompute, chunk_bytes] : choices) {
    list.push_back(options);
    list.back().recompute = recompute;
    list.back().head_chunk_bytes = chunk_bytes;
  }
  return list;
}

int n_layers_of(Program& program) {
  const Graph& graph = program.plan(program.train_functions().front()).graph;
  int n = 0;
  for (const Node& node : graph.nodes) n = std::max(n, node.tag.layer + 1);
  return n;
}

// Full recompute of as few layers as fit, cheap of the others. `all`: of all layers, which fits.
std::unique_ptr<Program> of_fewest_layers(std::unique_ptr<Program> all, const Catalogue& catalogue,
                                          int64_t limit_bytes) {
  std::unique_ptr<Program> fewest = std::move(all);
  ProgramOptions options = fewest->options();
  int too_few = 0, enough = options.recompute_layers;
  while (enough - too_few > 1) {
    options.recompute_layers = too_few + (enough - too_few) / 2;
    auto program = std::make_unique<Program>(options, catalogue);
    const bool fits = program->planned_bytes() <= limit_bytes;
    (fits ? enough : too_few) = options.recompute_layers;
    if (fits) fewest = std::move(program);
  }
  return fewest;
}

[[noreturn]] void fail_out_of_memory(Program& program, const Catalogue& catalogue,
                                     const MemoryLimit& limit) {
  const std::vector<std::string> fits = fitting_settings(program.options(), catalogue, limit.bytes);
  throw Error(ErrorCode::device,
              "[memory] expected at most {} ({}), got a plan of {}\n  most of it: {}\n  {}",
              bytes_text(static_cast<double>(limit.bytes)), limit.what,
              bytes_text(static_cast<double>(program.planned_bytes())),
              largest_roles_text(program.plan(program.train_functions().front())),
              fits.empty() ? "no setting that was tried fits: take a smaller model.seq or model"
                           : fmt::format("what fits: {}", fmt::join(fits, "; ")));
}

}  // namespace

std::string largest_roles_text(const Plan& plan) {
  const MemoryReport report = report_memory(plan);
  std::array<int, kMemoryRoleCount> roles{};
  std::iota(roles.begin(), roles.end(), 0);
  const auto bytes = [&](int role) { return report.by_role[static_cast<size_t>(role)]; };
  std::stable_sort(roles.begin(), roles.end(), [&](int a, int b) { return bytes(a) > bytes(b); });
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const int role = roles[static_cast<size_t>(i)];
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", enum_name(static_cast<MemoryRole>(role)),
                        bytes_text(static_cast<double>(bytes(role))));
  }
  return text;
}

std::unique_ptr<Program> nearest_to_budget(const ProgramOptions& options,
                                           const Catalogue& catalogue) {
  const int64_t budget_bytes = options.memory_budget;
  if (budget_bytes == 0) return std::make_unique<Program>(options, catalogue);
  std::unique_ptr<Program> smallest;
  for (ProgramOptions& candidate : candidates(options)) {
    const bool counts_layers = !options.recompute && candidate.recompute == Recompute::full;
    if (counts_layers) candidate.recompute_layers = n_layers_of(*smallest);
    auto program = std::make_unique<Program>(candidate, catalogue);
    const int64_t bytes = program->planned_bytes();
    if (bytes <= budget_bytes) {
      return counts_layers ? of_fewest_layers(std::move(program), catalogue, budget_bytes)
                           : std::move(program);
    }
    if (smallest == nullptr || bytes < smallest->planned_bytes()) smallest = std::move(program);
  }
  return smallest;
}

std::unique_ptr<Program> fit_to_budget(const ProgramOptions& options, const Catalogue& catalogue) {
  auto program = nearest_to_budget(options, catalogue);
  const int64_t budget_bytes = options.memory_budget;
  if (budget_bytes > 0) expect_fits(*program, catalogue, {budget_bytes, "train.memory_budget"});
  return program;
}

void expect_fits(Program& program, const Catalogue& catalogue, const MemoryLimit& limit) {
  if (program.planned_bytes() > limit.bytes) fail_out_of_memory(program, catalogue, limit);
}

}  // namespace octet
