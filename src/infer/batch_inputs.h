// Writes a batch into a function's inputs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/inputs.h"
#include "device/device.h"
#include "ir/graph.h"
#include "runtime/executor.h"

namespace octet {

// More inputs of a call, by name, in the bytes that the function has them in.
struct InputBytes {
  std::string name;
  std::vector<std::byte> bytes;
};

// All inputs of a call at once: the batch's arrays that the function reads, completed (data/
// inputs.h), numbers in the dtype that the graph has them in, and `more` that it reads. The batch
// must have the function's size. Throws Error{bad_data} where the function reads an array that
// neither brings.
void upload(BoundPlan& function, const Batch& batch, const std::vector<InputBytes>& more = {});

// Numbers in a dtype, by several threads where there are many.
void write_numbers(std::span<const float> numbers, Dtype dtype, std::span<std::byte> to);

// The bytes of one array, numbers in this dtype. Throws as upload() does.
std::vector<std::byte> input_bytes(const Batch& batch, std::string_view name, Dtype dtype);

// A number as an input of a call, f32.
InputBytes scalar_input(std::string name, float value);

// A batch of one row: `tokens` padded on the right to `seq`, without labels.
Batch padded_row(std::span<const int32_t> tokens, int64_t seq);

// Batches on their way to a device, made ready by the thread that reads them: large arrays of
// numbers in the bytes that a function reads, in memory that the device copies from at its best
// speed.
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
