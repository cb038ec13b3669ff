// Runs plans: one allocation per arena, addresses bound once, kernels prepared once. During run()
// nothing is allocated.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "device/device.h"
#include "plan/plan.h"

namespace octet {

// How these ranks' devices tell each other what they need to know. The group must outlive it.
RankExchange exchange_of(Group& group);

// The memory of a program: arenas as large as its largest function needs.
class Arenas {
 public:
  Arenas(Device& device, const int64_t (&arena_bytes)[kArenaCount]);
  std::byte* arena(Arena arena) { return memory_[static_cast<int>(arena)]->data(); }
  bool hold(const int64_t (&arena_bytes)[kArenaCount]) const;
  int64_t bytes(Arena arena) const { return memory_[static_cast<int>(arena)]->bytes(); }
  DeviceMemory& memory(Arena arena) { return *memory_[static_cast<int>(arena)]; }
  Device& device() { return device_; }
  // Lets the ranks' kernels reach each other's arenas, where devices have memory of their own.
  void connect(Group& group);
  // The address of a value of a plan that is bound to these arenas, and what it holds now.
  std::byte* address(const Plan& plan, ValueId id);
  std::vector<std::byte> read(const Plan& plan, ValueId id);

 private:
  Device& device_;
  std::unique_ptr<DeviceMemory> memory_[kArenaCount];
};

// Called around every step where a run is observed: before = true, then false.
using StepObserver = std::function<void(const Plan& plan, const PlanStep& step, bool before)>;

class BoundPlan {
 public:
  // Keeps references to the plan and the arenas. Throws what a kernel's prepare throws, and
  // Error(internal) where the plan was made for another target.
  BoundPlan(const Plan& plan, Catalogue& catalogue, Arenas& arenas);

  // The first run launches; where the device can capture it, later runs replay one graph.
  void run();
  void run(const StepObserver& observer);
  // Launches, and calls `before_overwrite` before the first launch that overwrites a parameter or
  // state of more than CopyRing::kSmall bytes, and `before_update` before the first that is part of
  // an update. An empty observer watches nothing.
  void run(const StepObserver& observer, const std::function<void()>& before_overwrite,
           const std::function<void()>& before_update = {});
  bool overwrites_state() const { return first_overwrite_ < steps_.size(); }
  // Launches what stands before the update: of a parameter, its master and moments nothing changes.
  void run_to_update(const StepObserver& observer);
  // True if the output is made by then.
  bool is_before_update(std::string_view output) const;

  const Plan& plan() const { return plan_; }
  // The address of an input or output; throws Error(internal) for an unknown name.
  std::byte* input(std::string_view name) const;
  std::byte* output(std::string_view name) const;
  bool has_input(std::string_view name) const { return plan_.graph.find_input(name) != nullptr; }
  bool has_output(std::string_view name) const { return plan_.graph.find_output(name) != nullptr; }

  // Copies to and from the host; sizes must match.
  void write_input(std::string_view name, const void* data, int64_t bytes);
  // Several at once: a device that copies queues them together (Device::copy_in_all).
  struct HostInput {
    std::string_view name;
    const void* data;
    int64_t bytes;
  };
  void write_inputs(const std::vector<HostInput>& inputs);
  void read_output(std::string_view name, void* data, int64_t bytes) const;
  float read_scalar(std::string_view name) const;

 private:
  struct Bound {
    LaunchFn launch;
    std::vector<std::byte*> operands, results;
    std::byte* scratch = nullptr;
    uint32_t begins_collective_group = 0;  // the number of the group of collectives, from 1 on
  };
  std::byte* address(ValueId id) const;
  void launch(size_t index, bool joins_next = false) const;
  void launch_all() const;
  // Ranks' collectives run beside what computes: what each waits for, and that all have ended.
  void wait_before(size_t index) const;
  void signal_behind(size_t index) const;

  // The first step that overwrites an input of which this is true.
  size_t find_first_overwrite(const std::function<bool(const GraphInput&)>& is_kept) const;
  void run_observed(size_t end, const StepObserver& observer,
                    const std::function<void(size_t)>& before_step);

  const Plan& plan_;
  Arenas& arenas_;
  std::vector<Bound> steps_;
  std::vector<bool> joins_next_;  // by step; where nothing is observed between
  size_t first_overwrite_ = 0;    // a step; as many as there are: none does
  size_t first_update_ = 0;       // the same
  int last_transfer_ = -1;        // the last collective; -1: none
  int n_runs_ = 0;
  std::unique_ptr<CapturedGraph> graph_;
};

}  // namespace octet
