#include "runtime/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/ordered_json.h"
#include "formats/table.h"

namespace octet {
namespace {

// A track each for the functions and the kernels in them.
constexpr int kFunctionTrack = 1, kKernelTrack = 2, kTransferTrack = 3;

// Nanoseconds are all that the clock has.
double rounded_us(double us) {
  return std::round(us * 1000) / 1000;
}

OrderedJson trace_event(const std::string& name, int track, double begin_us, double end_us) {
  return {{"name", name},
          {"ph", "X"},
          {"ts", rounded_us(begin_us)},
          {"dur", rounded_us(end_us - begin_us)},
          {"pid", 1},
          {"tid", track}};
}

OrderedJson launch_json(const ProfileEvent& event) {
  const Node& node = event.node();
  const Cost cost = cost_of(event.plan->graph, node);
  const KernelChoice& kernel = event.step().kernel;
  const int track = event.step().stream == Stream::compute ? kKernelTrack : kTransferTrack;
  OrderedJson json = trace_event(kernel.name, track, event.begin_us, event.end_us);
  json["cat"] = enum_name(node.tag.role);
  json["args"] = {{"op", op_def(node.op).name},        {"layer", node.tag.layer},
                  {"role", enum_name(node.tag.role)},  {"origin", node.tag.origin},
                  {"bytes", std::llround(cost.bytes)}, {"flops", std::llround(cost.flops)},
                  {"reference", kernel.reference}};
  return json;
}

OrderedJson track_json(int track, std::string_view name) {
  return {
      {"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", {{"name", name}}}};
}

}  // namespace

double floor_seconds(const Graph& graph, const Node& node, const Ceilings& ceilings) {
  const Cost cost = cost_of(graph, node);
  const ValueId first = node.operands.empty() ? kNoValue : node.operands.front();
  const Dtype dtype = first == kNoValue ? Dtype::f32 : graph.type(first).dtype;
  const bool is_narrow = dtype == Dtype::bf16 || is_quantized(dtype);
  double rate = is_narrow ? ceilings.narrow_flops_per_s : ceilings.f32_flops_per_s;
  if (is_fp8(dtype) && ceilings.code_flops_per_s > 0) rate = ceilings.code_flops_per_s;
  const double flops_s = rate > 0 ? cost.flops / rate : 0;
  const double bytes_s = ceilings.bytes_per_s > 0 ? cost.bytes / ceilings.bytes_per_s : 0;
  return std::max(flops_s, bytes_s);
}

double Profile::now_us() const {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_)
      .count();
}

StepObserver Profile::observer() {
  return
      [this](const Plan& plan, const PlanStep& step, bool before) { record(plan, step, before); };
}

void Profile::begin_run(const Plan& plan) {
  events_.reserve(events_.size() + plan.steps.size());  // not while a kernel's time runs
  if (device_ != nullptr) device_->synchronize();
  runs_.push_back({.plan = &plan, .train_step = train_step_, .first_event = events_.size()});
  runs_.back().begin_us = now_us();
  record_timing_event(0);
}

void Profile::record_timing_event(size_t index, Stream stream) {
  const auto event = static_cast<int>(index);
  device_ != nullptr ? device_->record_timing_event(event, stream) : host_timing_events_.set(event);
}

// Event 0 begins the run; launch i lies between events 2 i + 1 and 2 i + 2.
void Profile::read_timing_events() {
  ProfileRun& run = runs_.back();
  const auto at = [&](size_t event) {
    const auto to = static_cast<int>(event);
    const double ms =
        device_ != nullptr ? device_->ms_between(0, to) : host_timing_events_.ms_between(0, to);
    return run.begin_us + 1000 * ms;
  };
  for (size_t i = 0; run.first_event + i < run.end_event; ++i) {
    events_[run.first_event + i].begin_us = at(2 * i + 1);
    events_[run.first_event + i].end_us = at(2 * i + 2);
    run.end_us = std::max(run.end_us, events_[run.first_event + i].end_us);
  }
}

void Profile::record(const Plan& plan, const PlanStep& step, bool before) {
  const auto index = static_cast<size_t>(&step - plan.steps.data());
  if (!before) {
    record_timing_event(2 * index + 2, step.stream);
    if (index + 1 == plan.steps.size()) read_timing_events();
    return;
  }
  if (index == 0) begin_run(plan);
  CHECK(!runs_.empty() && runs_.back().plan == &plan);
  runs_.back().end_event = events_.size() + 1;
  events_.push_back({.plan = &plan, .plan_step = static_cast<int>(index)});
  record_timing_event(2 * index + 1, step.stream);
}

int64_t Profile::n_train_steps() const {
  std::set<int64_t> steps;
  for (const ProfileRun& run : runs_) steps.insert(run.train_step);
  return static_cast<int64_t>(steps.size());
}

double Profile::total_ms() const {
  double total_us = 0;
  for (const ProfileRun& run : runs_) {
    total_us += run.end_us - events_[run.first_event].begin_us;
  }
  return total_us / 1000;
}

std::vector<ProfileRow> rows_by_kernel(const Profile& profile, const Ceilings& ceilings) {
  const double total_ms = profile.total_ms();
  std::map<std::string, ProfileRow> by_name;
  ProfileRow rest{.kernel = "(between kernels)", .ms = total_ms};
  for (const ProfileEvent& event : profile.events()) {
    const KernelChoice& kernel = event.step().kernel;
    const Cost cost = cost_of(event.plan->graph, event.node());
    ProfileRow& row = by_name[kernel.name];
    row.kernel = kernel.name;
    row.is_reference = kernel.reference;
    ++row.count;
    row.ms += event.ms();
    row.bytes += cost.bytes;
    row.flops += cost.flops;
    row.floor_ms += 1000 * floor_seconds(event.plan->graph, event.node(), ceilings);
    if (event.step().stream == Stream::compute) rest.ms -= event.ms();
  }
  std::vector<ProfileRow> rows;
  rows.reserve(by_name.size() + 1);
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  std::ranges::sort(rows, std::ranges::greater{}, &ProfileRow::ms);
  rows.push_back(std::move(rest));
  for (ProfileRow& row : rows) row.share = total_ms > 0 ? row.ms / total_ms : 0;
  return rows;
}

double reference_share(const Profile& profile) {
  double ms = 0;
  for (const ProfileEvent& event : profile.events())
    ms += event.step().kernel.reference ? event.ms() : 0;
  const double total_ms = profile.total_ms();
  return total_ms > 0 ? ms / total_ms : 0;
}

std::string chrome_trace(const Profile& profile) {
  OrderedJson trace = {track_json(kFunctionTrack, "functions"), track_json(kKernelTrack, "kernels"),
                       track_json(kTransferTrack, "transfers between ranks")};
  const std::vector<ProfileEvent>& events = profile.events();
  for (const ProfileRun& run : profile.runs()) {
    const std::string name = fmt::format("{} of step {}", run.plan->graph.name, run.train_step);
    const double begin_us = events[run.first_event].begin_us;
    OrderedJson function = trace_event(name, kFunctionTrack, begin_us, run.end_us);
    function["cat"] = "function";
    function["args"] = {{"step", run.train_step}};
    trace.push_back(std::move(function));
    for (size_t i = run.first_event; i < run.end_event; ++i)
      trace.push_back(launch_json(events[i]));
  }
  const OrderedJson json = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(trace)}};
  // Names may come from files: what is not UTF-8 becomes U+FFFD.
  return json_line(json) + "\n";
}

}  // namespace octet
