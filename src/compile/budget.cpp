#include "compile/budget.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/units.h"
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

// 0 where not even one sequence fits, which is asked first: where memory is that short, each plan
// may take seconds.
int64_t largest_batch(ProgramOptions options, const Catalogue& catalogue, int64_t limit_bytes) {
  int64_t fits = 1, too_large = std::exchange(options.train.batch, fits);
  if (planned_bytes(options, catalogue) > limit_bytes) return 0;
  while (too_large - fits > 1) {
    options.train.batch = fits + (too_large - fits) / 2;
    const bool ok = planned_bytes(options, catalogue) <= limit_bytes;
    (ok ? fits : too_large) = options.train.batch;
  }
  return fits;
}

constexpr int64_t kWorthSaying = 20;  // a change that saves less than one part in so many is not

// Settings that take less memory, as a user writes them.
struct Change {
  std::string keys;
  ProgramOptions options;
};

// Each alone, then all together.
std::vector<Change> changes(const ProgramOptions& options, int64_t limit_bytes) {
  std::vector<Change> list;
  Change all = {"", options};
  const auto add = [&](const std::string& keys, const auto& apply) {
    list.push_back({keys, options});
    apply(list.back().options);
    apply(all.options);
    all.keys += (all.keys.empty() ? "" : " ") + keys;
  };
  if (!options.recompute) {
    add(fmt::format("train.memory_budget={}", limit_bytes), [](ProgramOptions& o) {
      o.recompute = Recompute::full;
      o.head_chunk_bytes = ChunkHeadOptions{}.chunk_bytes;
    });
  } else if (*options.recompute != Recompute::full) {
    add("train.recompute=full", [](ProgramOptions& o) { o.recompute = Recompute::full; });
  }
  const OptimPolicy& optim = options.optim;
  if (!is_quantized(optim.state_m.dtype) || !is_quantized(optim.state_v.dtype)) {
    add("optim.state_m=e4m3+x optim.state_v=e4m3+x", [](ProgramOptions& o) {
      o.optim.state_m = o.optim.state_v = state_format_from_name("e4m3+x");
    });
  }
  if (list.size() > 1) list.push_back(all);
  return list;
}

std::string batch_text(const ProgramOptions& options, const std::vector<Change>& ways,
                       const Catalogue& catalogue, int64_t limit_bytes) {
  const int64_t fits = limit_bytes > 0 ? largest_batch(options, catalogue, limit_bytes) : 0;
  if (fits > 0) return fmt::format("train.batch={} fits", fits);
  if (!ways.empty()) {
    const Change& most = ways.back();
    if (const int64_t batch = largest_batch(most.options, catalogue, limit_bytes); batch > 0)
      return fmt::format("train.batch={} fits with {}", batch, most.keys);
  }
  return "no train.batch fits: take a smaller model.seq or a smaller model";
}

[[noreturn]] void fail_out_of_memory(Program& program, const Catalogue& catalogue,
                                     const MemoryLimit& limit) {
  const int64_t bytes = program.planned_bytes();
  // Nothing is planned where nothing can fit.
  const std::vector<Change> ways =
      limit.bytes > 0 ? changes(program.options(), limit.bytes) : std::vector<Change>();
  std::vector<std::string> advice = {batch_text(program.options(), ways, catalogue, limit.bytes)};
  for (const Change& way : ways) {
    const int64_t takes = planned_bytes(way.options, catalogue);
    if (takes > bytes - bytes / kWorthSaying) continue;
    advice.push_back(fmt::format("{} takes {}{}", way.keys, bytes_text(static_cast<double>(takes)),
                                 takes <= limit.bytes ? " and fits" : ""));
  }
  throw Error(ErrorCode::device,
              "[memory] expected at most {} bytes ({}, {}), got a plan of {} bytes ({}), the most "
              "of it {}; {}",
              limit.bytes, bytes_text(static_cast<double>(limit.bytes)), limit.what, bytes,
              bytes_text(static_cast<double>(bytes)),
              largest_roles_text(program.plan(program.train_functions().front())),
              fmt::join(advice, "; "));
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

std::unique_ptr<Program> fit_to_budget(const ProgramOptions& options, const Catalogue& catalogue) {
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
  fail_out_of_memory(*smallest, catalogue, {budget_bytes, "train.memory_budget"});
}

void expect_fits(Program& program, const Catalogue& catalogue, const MemoryLimit& limit) {
  if (program.planned_bytes() > limit.bytes) fail_out_of_memory(program, catalogue, limit);
}

}  // namespace octet
