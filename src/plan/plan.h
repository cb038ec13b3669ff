// The static plan of one function: order, kernels, byte offsets. Nothing is decided after it.
//
// Memory lies in arenas, one allocation each. `persistent` holds parameters and optimizer states
// and is laid out once per program; `step` holds what the host or another function of the same step
// reads or writes (batch, step scalars, accumulated gradients, outputs); `transient` holds the
// rest, and kernels' scratch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/sharding.h"
#include "plan/catalogue.h"

namespace octet {

inline constexpr int64_t kAlignment = 256;  // of every buffer, bytes
constexpr int64_t align_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A run of bytes for the steps [first_step, last_step], both included. -1 and n_steps stand for
// before and after.
struct Buffer {
  std::string name;  // of the input or output, else "%12"
  MemoryRole role = MemoryRole::other;
  int layer = -1;
  Dtype dtype = Dtype::u8;
  Arena arena = Arena::transient;
  int64_t offset = 0, bytes = 0;
  int first_step = 0, last_step = 0;
};

// Bytes of an arena.
struct Place {
  Arena arena = Arena::transient;
  int64_t offset = 0, bytes = 0;
  int64_t end() const { return offset + bytes; }
  bool overlaps(const Place& other) const {
    return arena == other.arena && offset < other.end() && other.offset < end();
  }
};

struct PlanStep {
  NodeId node = kNoNode;
  KernelChoice kernel;
  int scratch = -1;  // index into buffers, -1 for none
  Stream stream = Stream::compute;
  int joins = -1;  // the collective that computing waits for before this step; -1 for none
  // True if a barrier of all ranks stands before, or behind, this one of collectives that stand
  // next to each other. Before a group all that stands before it has been computed.
  bool begins_collective_group = false, ends_collective_group = false;
  // The second phase of a collective (KernelChoice::has_two_phases), its reduction: multiprocessors
  // are free there, where beside other kernels it would wait for them.
  bool is_second_phase = false;
  // One launch makes this step and the next, which reads what this one makes: of a chain of steps
  // (plan/joined_launches.h) all but the last, which names the kernel.
  bool chains_next = false;
  std::string_view chain_kernel = {};
};

// Names and offsets that all functions of a program share: persistent and step inputs are found
// here by name.
struct Layout {
  struct Slot {
    TensorType type;
    InputKind kind = InputKind::parameter;
    StateKey key = {};
    Arena arena = Arena::persistent;
    int64_t offset = 0;
    std::optional<Shape> whole = {};  // of the tensor that it is one rank's shard of
    // Type of the whole tensor, as files hold it.
    TensorType whole_type() const { return {type.dtype, whole.value_or(type.shape)}; }
  };
  std::map<std::string, Slot> slots;
  int64_t rank = 0;  // whose shards they are
  int64_t arena_bytes[kArenaCount] = {0, 0, 0};
  // Constants are saved: frozen parameters, but beside adapters, whose base has files of its own.
  bool saves_constants = false;

  bool is_in_checkpoints(const Slot& slot) const;
  ElementRange range_of(const Slot& slot) const;  // what it holds of its whole tensor
  const Slot* find(StateUse use, std::string_view owner) const;  // nullptr where there is none

  // Adds the inputs of this kind that are not there yet; throws Error(internal) where one is there
  // with another type.
  void add_inputs(const Graph& graph);
};

struct Plan {
  Graph graph;
  ById<PlanStep> steps;  // in order; each node that runs stands once (views do not run)
  ById<Buffer> buffers;
  ById<int> buffer_of;      // by value; views and in-place results share a buffer
  ById<int64_t> offset_of;  // by value, within its buffer: of a shard that lies in the whole
  int64_t arena_bytes[kArenaCount] = {0, 0, 0};
  std::vector<std::string> near_misses;  // fusions that did not fire, and why
  std::string target;                    // what it was made for: Target::text()

  int64_t peak_bytes() const { return arena_bytes[0] + arena_bytes[1] + arena_bytes[2]; }
};

struct PlanOptions {
  // A result may take over its operand's buffer.
  bool reuse_in_place = true;
  int64_t bucket_bytes = int64_t{64} << 20;  // plan/schedule.h
};

// Place of a value, and places of those that are there.
Place place_of(const Plan& plan, ValueId id);
std::vector<Place> places_of(const Plan& plan, std::span<const ValueId> ids);
// True if one of a and one of b have bytes in common.
bool any_overlap(std::span<const Place> a, std::span<const Place> b);

// Schedules, chooses kernels and assigns memory. Throws Error(invalid_argument) naming a node
// without kernel.
Plan make_plan(const Graph& graph, const Layout& layout, const Catalogue& catalogue,
               const PlanOptions& options = {});

// The role and arena of an input: those of its use where it is a state (ir/states.h).
MemoryRole input_role(InputKind kind, StateUse use);
Arena input_arena(InputKind kind, StateUse use);

}  // namespace octet
