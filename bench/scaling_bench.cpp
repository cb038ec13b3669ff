#include "bench/scaling_bench.h"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "base/error.h"
#include "base/integer.h"
#include "bench/node_runner.h"
#include "bench/recipe_rounds.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "nn/model.h"
#include "plan/row_unavailable.h"
#include "runtime/bound_graph.h"

namespace octet {
namespace {

constexpr int64_t kGroup = 16, kHistory = 16;

struct Source {
  const char* name;
  bool has_maxima = false, has_history = false;
};
// The first is the baseline.
constexpr std::array kSources = {Source{"just-in-time"}, Source{"group", true, false},
                                 Source{"delayed", false, true}};

struct Operand {
  const char* name;
  int64_t cols;
};

// x of a dtype to codes, lowered: the ops that training has for it.
Graph scaling_graph(const Source& source, Dtype dtype, int64_t rows, int64_t cols) {
  Graph graph;
  graph.name = "scaling";
  graph.phase = Phase::lowered;
  Builder b(graph);
  const ValueId x = b.input(InputKind::batch, "x", {.dtype = dtype, .shape = {rows, cols}});
  ValueIds operands = {x, kNoValue};
  AmaxQuantizeAttrs attrs;
  if (source.has_history)
    operands[AmaxQuantize::history] =
        b.input(InputKind::batch, "history", {.dtype = Dtype::f32, .shape = {kHistory}});
  if (source.has_maxima) {
    const ValueId maxima = b.input(InputKind::batch, "maxima",
                                   {.dtype = dtype, .shape = {rows, ceil_div(cols, kGroup)}});
    operands.push_back(b.emit(OpCode::amax, NoAttrs{}, {maxima})[AmaxOp::amax]);
    attrs.measures = false;
  } else if (!source.has_history) {
    operands.pop_back();
  }
  const auto results = b.emit_typed(OpCode::amax_quantize, attrs, operands, {Dtype::e4m3});
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != kNoValue) b.output(fmt::format("out{}", i), results[i]);
  }
  return graph;
}

class ScalingRun {
 public:
  ScalingRun(const BenchMachine& machine, const Source& source, Dtype dtype, int64_t rows,
             int64_t cols)
      : machine_(machine) {
    const Graph graph = scaling_graph(source, dtype, rows, cols);
    Catalogue& catalogue = *machine.backend.catalogue;
    bind_available_rows(catalogue, [&] {
      run_ = std::make_unique<BoundGraph>(graph, *machine.backend.device, catalogue);
    });
    write_made_up(run_->bound, run_->plan.graph);
  }

  double ms() {
    const Timing once{.device = machine_.backend.device.get(), .rounds = 1};
    return median_ms([&] { run_->bound.run(); }, once);
  }
  double floor_ms(const Ceilings& ceilings) const {
    double seconds = 0;
    for (const Node& node : run_->plan.graph.nodes)
      seconds += floor_seconds(run_->plan.graph, node, ceilings);
    return 1000 * seconds;
  }

 private:
  const BenchMachine& machine_;
  std::unique_ptr<BoundGraph> run_;
};

BenchRow time_row(const BenchMachine& machine, const std::string& name, const std::string& shape,
                  double ms, double floor_ms) {
  BenchRow row = machine.row(name, shape);
  set_time(row, ms, floor_ms);
  return row;
}

void compare_rows(BenchRows& rows, size_t first) {
  for (size_t i = first; i < rows.size(); ++i) {
    rows[i].baseline = kSources.front().name;
    rows[i].ratio = rows[first].value / rows[i].value;
  }
}

}  // namespace

BenchRows bench_scaling(const BenchMachine& machine, const ProgramOptions& program,
                        const ModelSpec& spec, int rounds, const Ceilings& ceilings) {
  const int64_t n_tokens = program.train.batch * program.train.seq;
  if (!model_def(spec.kind).writes_text || spec.ffn <= 0 || n_tokens <= 0) {
    throw Error(ErrorCode::invalid_argument,
                "[bench scaling] model.kind: expected a decoder with an MLP, got {}",
                model_def(spec.kind).name);
  }
  const Dtype dtype = program.recipe_options.compute.value_or(Dtype::bf16);
  const Operand operands[] = {{"attention input", spec.hidden},
                              {"attention output", spec.heads * spec.head_dim},
                              {"mlp input", spec.hidden},
                              {"mlp product", spec.ffn}};
  std::array<double, kSources.size()> all_ms{}, all_floors{};
  BenchRows rows;
  for (const Operand& operand : operands) {
    std::vector<ScalingRun> runs;
    runs.reserve(kSources.size());
    for (const Source& source : kSources)
      runs.emplace_back(machine, source, dtype, n_tokens, operand.cols);
    std::array<std::vector<double>, kSources.size()> times;
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < runs.size(); ++i) times[i].push_back(runs[i].ms());
    }
    const size_t first = rows.size();
    for (size_t i = 0; i < runs.size(); ++i) {
      const double ms = median(times[i]), floor = runs[i].floor_ms(ceilings);
      all_ms[i] += ms;
      all_floors[i] += floor;
      rows.push_back(time_row(machine, fmt::format("scaling {} {}", operand.name, kSources[i].name),
                              fmt::format("[{},{}] {}", n_tokens, operand.cols, dtype_name(dtype)),
                              ms, floor));
    }
    compare_rows(rows, first);
  }
  const size_t first = rows.size();
  for (size_t i = 0; i < kSources.size(); ++i) {
    rows.push_back(
        time_row(machine, fmt::format("scaling layer {}", kSources[i].name),
                 fmt::format("{} tokens, hidden {}, ffn {}", n_tokens, spec.hidden, spec.ffn),
                 all_ms[i], all_floors[i]));
  }
  compare_rows(rows, first);
  return rows;
}

}  // namespace octet
