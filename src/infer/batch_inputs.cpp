#include "infer/batch_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/rows.h"
#include "infer/stored_weights.h"

namespace octet {
std::vector<std::byte> input_bytes(const Batch& batch, std::string_view name, Dtype dtype) {
  const HostTensor* tensor = batch.find(name);
  if (tensor == nullptr) {
    std::vector<std::string> names;
    for (const HostTensor& one : batch.tensors) names.push_back(one.spec.name);
    throw Error(ErrorCode::bad_data, "[data] expected an array '{}', which the model reads, got {}",
                name, fmt::join(names, ", "));
  }
  if (const auto* reals = std::get_if<std::vector<float>>(&tensor->values))
    return encode_weights(*reals, dtype);
  const auto bytes = std::as_bytes(std::span(std::get<std::vector<int32_t>>(tensor->values)));
  return {bytes.begin(), bytes.end()};
}

void upload(BoundPlan& function, Batch batch, const std::vector<InputBytes>& more) {
  const Graph& graph = function.plan().graph;
  std::vector<InputBytes> parts;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != InputKind::batch) continue;
    const bool is_brought = std::ranges::find(more, input.name, &InputBytes::name) != more.end();
    if (is_brought || !function.has_input(input.name)) continue;
    complete(batch, input.name);
    parts.push_back({input.name, input_bytes(batch, input.name, graph.type(input.value).dtype)});
  }
  std::vector<BoundPlan::HostInput> inputs;
  for (const std::vector<InputBytes>* list : {&std::as_const(parts), &more}) {
    for (const InputBytes& one : *list) {
      if (function.has_input(one.name))
        inputs.push_back({one.name, one.bytes.data(), std::ssize(one.bytes)});
    }
  }
  function.write_inputs(inputs);
}

InputBytes scalar_input(std::string name, float value) {
  InputBytes input{.name = std::move(name), .bytes = std::vector<std::byte>(sizeof(value))};
  std::memcpy(input.bytes.data(), &value, sizeof(value));
  return input;
}

Batch padded_row(std::span<const int32_t> tokens, int64_t seq) {
  CHECK(std::ssize(tokens) <= seq);
  Batch batch = empty_batch(1, seq);
  std::ranges::copy(tokens, batch.ints("tokens").begin());
  batch.lengths = {std::ssize(tokens)};
  return batch;
}

}  // namespace octet
