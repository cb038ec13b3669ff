// A block of a model (block_graphs.h) that runs on its caller's memory: what Python's octet.torch
// calls in autograd functions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/call_lock.h"
#include "library/block_graphs.h"
#include "plan/backend.h"
#include "plan/plan.h"

namespace octet {

// The back end of blocks, and the workspace that they share. One call at a time.
class BlockMachine {
 public:
  explicit BlockMachine(Backend backend) : backend_(std::move(backend)) {}

  Catalogue& catalogue() { return *backend_.catalogue; }
  Device& device() { return *backend_.device; }
  CallLock::Held enter() { return lock_.enter("block"); }
  // At least so many bytes, for the caller that entered; contents are undefined.
  std::byte* workspace(int64_t bytes);

 private:
  Backend backend_;
  CallLock lock_;
  std::unique_ptr<DeviceMemory> workspace_;
};

// A lowered graph whose inputs and outputs lie where each call says.
class BoundBlock {
 public:
  // Plans it and prepares its kernels. Under the machine's lock.
  BoundBlock(const Graph& graph, BlockMachine& machine);
  BoundBlock(const BoundBlock&) = delete;
  BoundBlock& operator=(const BoundBlock&) = delete;

  const Graph& graph() const { return plan_.graph; }
  int64_t workspace_bytes() const { return plan_.arena_bytes[static_cast<int>(Arena::transient)]; }
  // Addresses in the order of the graph's inputs and outputs; no output overlaps anything else.
  // Inputs are not written. Under the machine's lock.
  void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs,
           BlockMachine& machine);

 private:
  // Where a value lies: so many bytes behind the beginning of a buffer.
  struct Place {
    int buffer = -1;
    int64_t offset = 0;
  };
  struct Step {
    LaunchFn launch;
    std::vector<Place> operands, results;
    Place scratch;
  };
  // An output in a buffer that is another one's or an input's: copied behind the steps.
  struct Copy {
    Place from;
    size_t output;
    int64_t bytes;
  };
  Place place(ValueId id) const;
  std::vector<Place> places(const ValueIds& ids) const;
  void find_external();
  std::byte* address(const Place& place) const;

  Plan plan_;
  std::vector<Step> steps_;
  std::vector<int> input_buffers_, output_buffers_;  // output_buffers_: -1 where it is copied
  std::vector<Copy> copies_;
  std::vector<std::byte*> buffers_;             // of the call
  std::vector<std::byte*> operands_, results_;  // of the launch
};

// Both passes. Calls of several threads are queued.
class Block {
 public:
  Block(const BlockSource& source, std::shared_ptr<BlockMachine> machine);

  const Graph& forward() const { return forward_->graph(); }
  bool has_backward() const { return backward_ != nullptr; }
  const Graph& backward() const { return backward_->graph(); }
  void run_forward(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs);
  void run_backward(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs);

 private:
  std::shared_ptr<BlockMachine> machine_;
  std::unique_ptr<BoundBlock> forward_, backward_;
};

}  // namespace octet
