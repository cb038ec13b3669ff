#include "compile/budget.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
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

int64_t planned_bytes(const ProgramOptions& options, const Catalogue& catalogue) {
  return Program(options, catalogue).planned_bytes();
}

// 0 where not even one sequence fits.
int64_t largest_batch(ProgramOptions options, const Catalogue& catalogue, int64_t budget_bytes) {
  int64_t fits = 0, too_large = options.train.batch;
  while (too_large - fits > 1) {
    options.train.batch = fits + (too_large - fits) / 2;
    const bool ok = planned_bytes(options, catalogue) <= budget_bytes;
    (ok ? fits : too_large) = options.train.batch;
  }
  return fits;
}

std::string largest_roles(const Plan& plan) {
  const MemoryReport report = report_memory(plan);
  std::array<int, kMemoryRoleCount> roles{};
  std::iota(roles.begin(), roles.end(), 0);
  const auto bytes = [&](int role) { return report.by_role[static_cast<size_t>(role)]; };
  std::stable_sort(roles.begin(), roles.end(), [&](int a, int b) { return bytes(a) > bytes(b); });
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const int role = roles[static_cast<size_t>(i)];
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", enum_name(static_cast<MemoryRole>(role)),
                        bytes(role));
  }
  return text;
}

}  // namespace

ProgramOptions fit_to_budget(const ProgramOptions& options, const Catalogue& catalogue) {
  const int64_t budget_bytes = options.memory_budget;
  if (budget_bytes == 0) return options;
  const std::vector<ProgramOptions> list = candidates(options);
  const ProgramOptions* smallest = nullptr;
  int64_t least = 0;
  for (const ProgramOptions& candidate : list) {
    const int64_t bytes = planned_bytes(candidate, catalogue);
    if (bytes <= budget_bytes) return candidate;
    if (smallest == nullptr || bytes < least) smallest = &candidate, least = bytes;
  }
  const int64_t batch = largest_batch(*smallest, catalogue, budget_bytes);
  Program program(*smallest, catalogue);
  throw Error(ErrorCode::device,
              "[budget] expected at most {} bytes (train.memory_budget), got {} at least ({}); {}",
              budget_bytes, least, largest_roles(program.plan(program.train_functions().front())),
              batch > 0 ? fmt::format("train.batch {} fits", batch)
                        : "no train.batch fits: take a smaller model.seq or smaller "
                          "optim.state_m and optim.state_v");
}

}  // namespace octet
