#include "train/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "compile/budget.h"
#include "train/run_setup.h"

namespace octet {
namespace {

OrderedJson buffer_json(const Buffer& b) {
  return {{"name", b.name},
          {"role", enum_name(b.role)},
          {"layer", b.layer},
          {"dtype", dtype_name(b.dtype)},
          {"lane", enum_name(b.arena)},
          {"offset", b.offset},
          {"bytes", b.bytes},
          {"first_step", b.first_step},
          {"last_step", b.last_step}};
}

// The recomputation, where the run or its budget chose it.
std::string recompute_text(const ProgramOptions& options) {
  if (!options.recompute) return "";
  const std::string layers =
      options.recompute_layers < 0 ? "" : fmt::format(", of {} layers", options.recompute_layers);
  return fmt::format("recompute {}{}\n", enum_name(*options.recompute), layers);
}

// A line without the numbers of its values and its layer, which layers of one kind share.
std::string without_numbers(const std::string& line) {
  std::string kept;
  for (size_t i = 0; i < line.size();) {
    const bool is_number = line[i] >= '0' && line[i] <= '9';
    const bool is_of_place = kept.ends_with('%') || kept.ends_with("@ layer ");
    if (!is_number || !is_of_place) {
      kept += line[i++];
      continue;
    }
    i = std::min(line.find_first_not_of("0123456789", i), line.size());
  }
  return kept;
}

// The fusions that did not fire, of those that differ by their layer alone the first.
std::string near_misses_text(const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::map<std::string, int64_t> counts;
  for (const std::string& line : lines) ++counts[without_numbers(line)];
  std::string text = "fusions that did not fire:\n";
  for (const std::string& line : lines) {
    const auto found = counts.find(without_numbers(line));
    if (found == counts.end()) continue;  // told
    const int64_t n_more = found->second - 1;
    text +=
        fmt::format("  {}{}\n", line, n_more > 0 ? fmt::format("; {} more like it", n_more) : "");
    counts.erase(found);
  }
  return text;
}

// The frozen parameters, where the run freezes some.
std::string frozen_text(const Program& program) {
  if (program.options().freeze.empty()) return "";
  int64_t n = 0;
  for (const auto& [name, slot] : program.layout().slots)
    n += slot.kind == InputKind::constant ? slot.type.n_elems() : 0;
  return fmt::format("frozen {:.2f} M parameters\n", static_cast<double>(n) / 1e6);
}

// The most bytes of parameters' gradients at any step: at the last gradient, where updates wait for
// the norm of all.
int64_t gradient_bytes(const Plan& plan) {
  std::map<int, int64_t> changes;  // by step
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.role != MemoryRole::gradients) continue;
    changes[buffer.first_step] += buffer.bytes;
    changes[buffer.last_step + 1] -= buffer.bytes;
  }
  int64_t now = 0, most = 0;
  for (const auto& [step, bytes] : changes) most = std::max(most, now += bytes);
  return most;
}

// Ranks add values; their sum is rounded again where it waits for its update as a shard.
std::string gradients_text(const Plan& plan, const ProgramOptions& options) {
  const int64_t bytes = gradient_bytes(plan);
  if (bytes == 0) return "";
  std::string text =
      fmt::format("gradients of parameters: {} at most", bytes_text(static_cast<double>(bytes)));
  const ParallelOptions& ranks = options.parallel;
  if (options.recipe_options.scaled_gradient && ranks.ranks > 1) {
    const bool is_cut = ranks.shard != ShardStage::none;
    const bool is_stored = is_cut && options.accumulate == 1 && !ranks.strict;
    text += fmt::format(
        "; rounded to {} (recipe.scaled_gradient), but f32 until {} ranks add them; the sum is {}",
        dtype_name(*options.recipe_options.scaled_gradient), ranks.ranks,
        is_stored ? "fp16 until its update"
                  : "f32 (fp16 with parallel.shard, one micro-batch a step, and no "
                    "parallel.strict)");
  }
  return text + "\n";
}

}  // namespace

OrderedJson rescales_json(const RescaleCounts& counts) {
  return {{"measured", counts.measured},
          {"at_run_time", counts.at_run_time},
          {"constant", counts.constant},
          {"folded", counts.folded}};
}

void write_plan(Files& files, const std::string& path, const Plan& plan) {
  const RescaleCounts counts = count_rescales(plan.graph);
  if (counts == RescaleCounts{}) {
    if (files.exists(path)) files.remove(path);
    return;
  }
  write_atomically(files, path, OrderedJson{{"rescales", rescales_json(counts)}}.dump(2) + "\n");
}

PlanReport::PlanReport(const Files& files, const RunConfig& config, const ModelSpec& spec,
                       const Catalogue& catalogue, int64_t ranks_a_host)
    : config_(config), spec_(spec) {
  ProgramOptions asked = loaded_options(files, config, spec);
  asked.parallel.ranks_a_host = ranks_a_host;
  program_ = fit_to_budget(asked, catalogue);
  for (const FunctionKey& key : program_->train_keys()) {
    if (key.size != asked.train) continue;
    const Plan& plan = program_->plan(key);
    functions_.push_back(plan.graph.name);
    if (largest_ == nullptr || plan.peak_bytes() > largest_->peak_bytes()) largest_ = &plan;
  }
  program_->planned_bytes();
  program_->arena_bytes(arena_bytes_);
}

// The plan's memory, and what other functions need beyond it as `other`.
MemoryReport PlanReport::memory() const {
  MemoryReport report = report_memory(*largest_);
  const int64_t allocated = arena_bytes_[0] + arena_bytes_[1] + arena_bytes_[2];
  report.by_role[static_cast<size_t>(MemoryRole::other)] += allocated - report.peak_bytes;
  report.peak_bytes = allocated;
  return report;
}

int64_t PlanReport::u_bytes() const {
  return config_.train.batch * row_tokens(spec_, config_.model.seq) * spec_.hidden * 2;
}

OrderedJson PlanReport::json(WithBuffers buffers) const {
  const MemoryReport report = memory();
  OrderedJson roles = OrderedJson::object(), arenas = roles, ops = roles;
  for (int role = 0; role < kMemoryRoleCount; ++role) {
    roles[std::string(enum_name(static_cast<MemoryRole>(role)))] =
        report.by_role[static_cast<size_t>(role)];
  }
  for (int arena = 0; arena < kArenaCount; ++arena) {
    arenas[std::string(enum_name(static_cast<Arena>(arena)))] = arena_bytes_[arena];
  }
  for (const auto& [name, count] : count_ops(largest_->graph)) ops[name] = count;
  OrderedJson result = {{"function", largest_->graph.name},
                        {"target", largest_->target},
                        {"functions", functions_},
                        {"recipe", config_.recipe.base},
                        {"deterministic", config_.train.deterministic},
                        {"peak_bytes", report.peak_bytes},
                        {"by_role", roles},
                        {"gradient_bytes", gradient_bytes(*largest_)},
                        {"u_bytes", u_bytes()},
                        {"batch", config_.train.batch},
                        {"seq", row_tokens(spec_, config_.model.seq)},
                        {"hidden", spec_.hidden},
                        {"params", parameter_count(spec_)},
                        {"kept_per_layer_bytes", kept_per_layer(largest_->graph)},
                        {"layer_names", layer_names(largest_->graph)},
                        {"ops", ops},
                        {"near_misses", largest_->near_misses},
                        {"arenas", arenas},
                        {"n_steps", largest_->steps.size()}};
  if (const RescaleCounts counts = count_rescales(largest_->graph); counts != RescaleCounts{})
    result["rescales"] = rescales_json(counts);
  if (buffers == WithBuffers::yes) {
    result["buffers"] = OrderedJson::array();
    for (const Buffer& buffer : largest_->buffers) result["buffers"].push_back(buffer_json(buffer));
  }
  return result;
}

std::string PlanReport::text() const {
  const MemoryReport report = memory();
  const std::vector<int64_t> kept = kept_per_layer(largest_->graph);
  const auto u = static_cast<double>(u_bytes());
  std::string text =
      fmt::format("{} {:.2f} M parameters, recipe {}{}, batch {} x {}, function {}, {} steps\n",
                  model_def(spec_.kind).name, static_cast<double>(parameter_count(spec_)) / 1e6,
                  config_.recipe.base, config_.train.deterministic ? ", deterministic" : "",
                  config_.train.batch, row_tokens(spec_, config_.model.seq), largest_->graph.name,
                  largest_->steps.size());
  text += "for " + largest_->target + "\n" + recompute_text(program_->options());
  text += frozen_text(*program_);
  text += fmt::format("peak {}, at step {}\n", bytes_text(static_cast<double>(report.peak_bytes)),
                      report.peak_step);
  for (int role = 0; role < kMemoryRoleCount; ++role) {
    const int64_t bytes = report.by_role[static_cast<size_t>(role)];
    text += fmt::format("  {:14} {:>12}  {:5.1f} %\n", enum_name(static_cast<MemoryRole>(role)),
                        bytes_text(static_cast<double>(bytes)),
                        100.0 * static_cast<double>(bytes) /
                            static_cast<double>(std::max<int64_t>(report.peak_bytes, 1)));
  }
  const std::vector<std::string> names = layer_names(largest_->graph);
  for (size_t i = 0; i < kept.size(); ++i) {  // of the first layer of each stack
    const bool is_named = names[i].ends_with(".layers.0");
    if (i > 0 && !is_named) continue;
    const auto bytes = static_cast<double>(kept[i]);
    text += fmt::format("kept for the backward of {}: {} ({:.3f} U)\n",
                        is_named ? names[i] : "layer 0", bytes_text(bytes), bytes / u);
  }
  text += gradients_text(*largest_, program_->options());
  for (const auto& [name, count] : count_ops(largest_->graph))
    text += fmt::format("  {:6} {}\n", count, name);
  text += rescales_text(count_rescales(largest_->graph));
  text += near_misses_text(largest_->near_misses);
  return text;
}

}  // namespace octet
