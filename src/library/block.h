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

// Buffers that a call reads and writes. Addresses are of the device, in the order of the graph's
// inputs and outputs; no output overlaps anything else. Inputs are not written.
struct BlockCall {
  std::span<std::byte*const> inputs, outputs;
  std::byte* workspace = nullptr;  // of workspace_bytes(); nullptr: the machine's own
  void* stream = nullptr;          // of the caller's (Device::borrow_stream); of a CPU none
};

// The back end of blocks, and the workspace that they share. One call at a time.
class BlockMachine {
 public:
  explicit BlockMachine(Backend backend) : backend_(std::move(backend)) {}

  Catalogue& catalogue() { return *backend_.catalogue; }
  Device& device() { return *backend_.device; }
  CallLock::Held enter() { return lock_.enter("block"); }
  bool is_asynchronous() const { return backend_.device->info().is_asynchronous; }
  // At least so many bytes, for the caller that entered; contents are undefined.
  std::byte* workspace(int64_t bytes);

 private:
  Backend backend_;
  CallLock lock_;
  std::unique_ptr<DeviceMemory> workspace_;
};

// A lowered graph whose inputs and outputs lie where each call says. The outputs `spoiled` become
// NaN where the output `flag` is true, if there is one; nobody waits for the device.
class BoundBlock {
 public:
  // Plans it and prepares its kernels, which may wait for the device. Under the machine's lock.
  BoundBlock(const Graph& graph, std::string_view flag, const std::vector<std::string>& spoiled,
             BlockMachine& machine);
  BoundBlock(const BoundBlock&) = delete;
  BoundBlock& operator=(const BoundBlock&) = delete;

  const Graph& graph() const { return plan_.graph; }
  int64_t workspace_bytes() const { return plan_.arena_bytes[static_cast<int>(Arena::transient)]; }
  // Launches. Under the machine's lock.
  void run(const BlockCall& call, BlockMachine& machine);

 private:
  // The place of a value: so many bytes behind the beginning of a buffer.
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
  void find_spoiled(std::string_view flag, const std::vector<std::string>& spoiled);
  void bind(const BlockCall& call, std::byte* workspace);
  std::byte* address(const Place& place) const;

  Plan plan_;
  std::vector<Step> steps_;
  std::vector<int> input_buffers_, output_buffers_;  // output_buffers_: -1 where it is copied
  std::vector<Copy> copies_;
  int flag_ = -1;                               // of the outputs
  std::vector<int> spoiled_;                    // the same
  std::vector<std::byte*> buffers_;             // of the call
  std::vector<std::byte*> operands_, results_;  // of the launch
};

// Both passes. Calls of several threads are queued. Launches of one block follow each other: its
// kernels count in memory of their own, so that it has one stream at a time.
class Block {
 public:
  // stream: the calls' first one, on which kernels may be tried.
  Block(const BlockSource& source, std::shared_ptr<BlockMachine> machine, void* stream = nullptr);

  const Graph& forward() const { return forward_->graph(); }
  bool has_backward() const { return backward_ != nullptr; }
  const Graph& backward() const { return backward_->graph(); }
  // Workspace of either pass, whichever takes more; 0 where the machine has one of its own.
  int64_t workspace_bytes() const;
  void run_forward(const BlockCall& call);
  void run_backward(const BlockCall& call);

 private:
  void make(const BlockSource& source);

  std::shared_ptr<BlockMachine> machine_;
  std::unique_ptr<BoundBlock> forward_, backward_;
};

}  // namespace octet
