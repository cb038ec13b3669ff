// Batches on their way to a device, made ready by the thread that reads them: large arrays of
// numbers in the bytes that a function reads, in memory that the device copies from at its best
// speed.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "data/inputs.h"
#include "device/device.h"
#include "ir/graph.h"

namespace octet {

class BatchStaging {
 public:
  // For batches of this graph's inputs; the device outlives it, and may be used by its thread.
  BatchStaging(Device& device, const Graph& graph);

  // HostTensor::staged of each array of numbers of at least kMin bytes that the graph reads, in
  // place of its values; what a loss counts stays. Copies of the batch share the bytes; they return
  // to a pool with the last of them. For any thread. Throws Error{device} where there is no memory.
  void stage(Batch& batch) const;

  static constexpr int64_t kMin = 1 << 16;

 private:
  class Pool;
  std::map<std::string, Dtype> dtypes_;  // by name
  std::shared_ptr<Pool> pool_;           // batches share it
};

}  // namespace octet
