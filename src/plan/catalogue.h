// Offers of a back end for a node: a choice that costs nothing to ask (for plans without a device),
// and the prepared kernel itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "device/device.h"
#include "ir/graph.h"
#include "ir/sharding.h"
#include "plan/target.h"

namespace octet {

struct KernelChoice {
  std::string name;             // "gemm bf16 x bf16 -> f32", for plans and profiles alone
  int64_t scratch_bytes = 0;    // upper bound; the plan reserves it for the node's duration
  bool reference = false;       // a scalar kernel that decodes, computes in double and encodes
  bool has_two_phases = false;  // a collective of two phases, a launch each: a copy of what others
                                // have, and the reduction (PlanStep::is_second_phase)
  bool may_join = false;        // launches that do not depend on each other may be one (LaunchArgs)
  const KernelRow* row = nullptr;      // of the back end's table; nullptr: it has none
  const KernelRow* runs_on = nullptr;  // RowChoice
  // The device's kernels that a launch is made of, in order, as profilers name them; empty: not
  // told, as of a CPU.
  std::vector<std::string_view> launches = {};
};

// Addresses by the slots of the node's operands and results; nullptr for what is absent.
struct LaunchArgs {
  std::span<std::byte* const> operands;
  std::span<std::byte* const> results;
  std::byte* scratch = nullptr;
  Stream stream = Stream::compute;
  // Fields of collectives (plan/plan.h); begins_collective_group: the group's number in the plan, 0
  // where none begins.
  uint32_t begins_collective_group = 0;
  bool ends_collective_group = false, is_second_phase = false;
  // The next launch is of the same row and types, and neither touches what the other writes, or it
  // is the next of a chain (plan/joined_launches.h): the back end may wait for it and launch both
  // as one.
  bool joins_next = false;
};

// A choice that was made by timing kernels while they were prepared: with another one, sums may
// have other last bits.
struct AutotunedChoice {
  std::string problem = {};  // what it was made for: sizes, types, layout
  std::string choice = {};   // in words
  std::string code = {};     // what use_autotune_cache() reads
  int64_t workspace_bytes = 0;
  double ms = 0;  // 0: not measured
};
struct AutotuneCache {
  std::string machine = {};  // what they hold for: device, versions, mode
  std::vector<AutotunedChoice> choices = {};
};

// How to initialize a parameter where it lies: element i is f32(std * f32(normal i)) of
// the stream, or `constant` where std is 0; stored as train/weights.h says.
struct WeightInit {
  RandomStream random = {};
  double std = 0, constant = 0;
  ElementRange weight_run = {}, master_run = {};  // of the parameter: what lies at the addresses
  Dtype weight = Dtype::f32, master = Dtype::f32;
  std::byte* weight_at = nullptr;
  std::byte* master_at = nullptr;  // nullptr: the weight has no master beside it
};

// Only launches: no allocation above 64 KiB, no failure other than a device fault.
using LaunchFn = std::function<void(const LaunchArgs&)>;

class Catalogue {
 public:
  explicit Catalogue(Target target = {}) : target_(std::move(target)) {}
  virtual ~Catalogue() = default;
  const Target& target() const { return target_; }
  // Plans from now on do without this row ("rms_norm codes").
  virtual void strike(std::string row) { target_.without.push_back(std::move(row)); }
  // Plans from now on run on so many ranks.
  void set_ranks(int ranks) { target_.ranks = ranks; }
  // Plans from now on have these sums. Throws Error{invalid_argument} where the device is a card
  // with others.
  virtual void set_arithmetic(Arithmetic arithmetic);
  // Nothing where no kernel exists for the node with these dtypes.
  virtual std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const = 0;
  // Checks everything and makes what the launch of this choice for the node needs; throws Error
  // that names the node. Nothing is chosen here.
  virtual LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) = 0;
  // True if it has a kernel that is worth it for a form that not all targets have: TakesForm in
  // passes/lower/fuse.h.
  virtual bool takes_form(const Graph&, const Node&) const { return false; }
  // Queues the initialization. false: the host has to initialize it.
  virtual bool init_weight(const WeightInit& what) { return static_cast<void>(what), false; }

  // Choices of all kernels prepared so far, by problem.
  virtual AutotuneCache autotune_cache() const { return {}; }
  // Kernels prepared from now on take these choices where they still can be had. Throws
  // Error{bad_data} for a code that autotune_cache() never made.
  virtual void use_autotune_cache(std::span<const AutotunedChoice> choices) {
    static_cast<void>(choices);
  }

 protected:
  Target target_;
};

}  // namespace octet
