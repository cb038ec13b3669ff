// Times of a step: the wall time of every kernel launch while a profile watches, as a table by
// kernel and as a trace that Chrome and Perfetto open.
//
// A profile watches through a StepObserver (runtime/executor.h): what is not observed pays nothing.
// Times are of the host's steady clock, in microseconds since the profile was made, so a launch
// must not return before its work is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/op_def.h"
#include "runtime/executor.h"

namespace octet {

// Ceilings of the machine, measured in the same run; 0: not known.
struct Ceilings {
  double bytes_per_s = 0;         // of a copy, read and written
  double f32_flops_per_s = 0;     // of a large GEMM of f32
  double narrow_flops_per_s = 0;  // of a large GEMM of bf16
  double code_flops_per_s = 0;    // of a large GEMM of e4m3; 0: codes are held against bf16
};

// The least time that these ceilings allow: the longer of the bytes' and the products'. FP16 counts
// as f32.
double floor_seconds(const Graph& graph, const Node& node, const Ceilings& ceilings);

struct ProfileEvent {
  const Plan* plan = nullptr;
  int plan_step = 0;                // index into plan->steps
  double begin_us = 0, end_us = 0;  // of a transfer: with its waiting for other ranks

  const PlanStep& step() const { return plan->steps[plan_step]; }
  const Node& node() const { return plan->graph.node(step().node); }
  double ms() const { return (end_us - begin_us) / 1000; }
};

// One run of a plan: events [first_event, end_event).
struct ProfileRun {
  const Plan* plan = nullptr;
  int64_t train_step = 0;
  size_t first_event = 0, end_event = 0;
  double begin_us = 0, end_us = 0;  // end: of the last launch to end
};

class Profile {
 public:
  // Times by the device's timing events: what it watches stays queued as ever, and a run is read
  // when its last launch has ended. Without a device, what it watches runs as it is called.
  explicit Profile(Device* device = nullptr) : device_(device) {}

  // All that runs from now on belongs to this training step.
  void begin_step(int64_t train_step) { train_step_ = train_step; }
  // Refers to this object. The plans that it sees must outlive the profile.
  StepObserver observer();

  const std::vector<ProfileEvent>& events() const { return events_; }
  const std::vector<ProfileRun>& runs() const { return runs_; }
  int64_t n_train_steps() const;  // that were seen
  // From the first launch to the last return, summed over the runs.
  double total_ms() const;

 private:
  void record(const Plan& plan, const PlanStep& step, bool before);
  void begin_run(const Plan& plan);
  void record_timing_event(size_t index, Stream stream = Stream::compute);
  void read_timing_events();
  double now_us() const;

  Device* device_;
  HostTimingEvents host_timing_events_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t train_step_ = 0;
  std::vector<ProfileEvent> events_;
  std::vector<ProfileRun> runs_;
};

// One kernel's share of a profile, all its launches together.
struct ProfileRow {
  std::string kernel;
  bool is_reference = false;
  int64_t count = 0;
  double ms = 0;
  double share = 0;  // of total_ms
  double bytes = 0;  // as cost_of counts them
  double flops = 0;
  double floor_ms = 0;  // by the ceilings
};

// By falling time; the last row, "(between kernels)", is the rest, so that `ms` sums to total_ms
// and `share` to 1, but for transfers, which run beside what computes.
std::vector<ProfileRow> rows_by_kernel(const Profile& profile, const Ceilings& ceilings = {});

// Share of total_ms in reference kernels.
double reference_share(const Profile& profile);

// Trace events as JSON ("X": complete events, microseconds): one a launch, named by its kernel,
// with op, layer, role, origin, bytes and flops, and one around each plan's run, named by the
// function.
std::string chrome_trace(const Profile& profile);

}  // namespace octet
