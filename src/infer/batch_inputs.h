// Writes a batch into a function's inputs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/inputs.h"
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

}  // namespace octet
