#include "infer/batch_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <optional>

#include "base/cores.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/thread_pool.h"
#include "data/rows.h"
#include "infer/stored_weights.h"

namespace octet {
namespace {

const HostTensor& tensor_of(const Batch& batch, std::string_view name) {
  const HostTensor* tensor = batch.find(name);
  if (tensor != nullptr) return *tensor;
  std::vector<std::string> names;
  for (const HostTensor& one : batch.tensors) names.push_back(one.spec.name);
  throw Error(ErrorCode::bad_data, "[data] expected an array '{}', which the model reads, got {}",
              name, fmt::join(names, ", "));
}

// The bytes of an array: its own, or of its numbers in a narrower dtype, which lie in `converted`.
std::span<const std::byte> bytes_in(const HostTensor& tensor, Dtype dtype,
                                    std::unique_ptr<std::byte[]>& converted) {
  if (tensor.staged.data != nullptr) return {tensor.staged.data.get(), tensor.staged.size};
  const auto* reals = std::get_if<std::vector<float>>(&tensor.values);
  if (reals == nullptr)
    return std::as_bytes(std::span(std::get<std::vector<int32_t>>(tensor.values)));
  if (dtype == Dtype::f32) return std::as_bytes(std::span(*reals));
  const auto n_bytes = static_cast<size_t>(bytes_of(dtype, std::ssize(*reals)));
  converted = std::make_unique_for_overwrite<std::byte[]>(n_bytes);
  write_numbers(*reals, dtype, {converted.get(), n_bytes});
  return {converted.get(), n_bytes};
}

}  // namespace

// A batch of pictures has tens of millions: one thread would take as long as a step.
void write_numbers(std::span<const float> numbers, Dtype dtype, std::span<std::byte> to) {
  constexpr int64_t kPiece = 1 << 18;
  const int64_t n = std::ssize(numbers), width = bytes_of(dtype, 1);
  CHECK(std::ssize(to) == n * width);
  const auto write_piece = [&](int64_t piece, int) {
    const int64_t begin = piece * kPiece, count = std::min(kPiece, n - begin);
    encode_weights(
        numbers.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), dtype,
        to.subspan(static_cast<size_t>(begin * width), static_cast<size_t>(count * width)));
  };
  constexpr int64_t kMaxThreads = 8;  // memory has no more
  const int64_t n_pieces = ceil_div(n, kPiece);
  const int64_t n_threads = n_pieces < 4 ? 1 : std::min<int64_t>(usable_cores(), kMaxThreads);
  ThreadPool(static_cast<int>(n_threads)).run(n_pieces, write_piece);
}

std::vector<std::byte> input_bytes(const Batch& batch, std::string_view name, Dtype dtype) {
  std::unique_ptr<std::byte[]> converted;
  const auto bytes = bytes_in(tensor_of(batch, name), dtype, converted);
  return {bytes.begin(), bytes.end()};
}

void upload(BoundPlan& function, const Batch& batch, const std::vector<InputBytes>& more) {
  const Graph& graph = function.plan().graph;
  std::optional<Batch> completed;  // a copy, where an array follows from others
  std::list<std::unique_ptr<std::byte[]>> converted;
  std::vector<BoundPlan::HostInput> inputs;
  const auto is_read = [&](const GraphInput& input) {
    return input.kind == InputKind::batch && function.has_input(input.name) &&
           std::ranges::find(more, input.name, &InputBytes::name) == more.end();
  };
  for (const GraphInput& input : graph.inputs) {
    if (!is_read(input) || batch.find(input.name) != nullptr) continue;
    if (!completed) completed = batch;
    complete(*completed, input.name);
  }
  for (const GraphInput& input : graph.inputs) {
    if (!is_read(input)) continue;
    const HostTensor& tensor = tensor_of(completed ? *completed : batch, input.name);
    const auto bytes = bytes_in(tensor, graph.type(input.value).dtype, converted.emplace_back());
    inputs.push_back({input.name, bytes.data(), std::ssize(bytes)});
  }
  for (const InputBytes& one : more) {
    if (function.has_input(one.name))
      inputs.push_back({one.name, one.bytes.data(), std::ssize(one.bytes)});
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
