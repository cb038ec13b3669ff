#include "infer/batch_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/thread_pool.h"
#include "data/rows.h"
#include "infer/tensor_streams.h"

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
    if (input.name != "pictures" || completed->find(input.name) != nullptr) continue;
    const Shape& shape = graph.type(input.value).shape;  // which tokens do not tell
    completed->add(pictures_input({shape.begin() + 1, shape.end()}));
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

// Taking page-locked memory stops the device for a moment: it is kept for the next batch.
class BatchStaging::Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(Device& device) : device_(device) {}

  std::shared_ptr<std::byte> take(int64_t n_bytes) {
    const std::shared_ptr<DeviceMemory> memory = find_or_allocate(n_bytes);
    const auto give_back = [pool = shared_from_this(), memory](std::byte*) {
      const std::lock_guard lock(pool->mutex_);
      pool->free_.push_back(memory);
    };
    return {memory->data(), give_back};
  }

 private:
  std::shared_ptr<DeviceMemory> find_or_allocate(int64_t n_bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::ranges::find(free_, n_bytes, &DeviceMemory::bytes);
      if (found != free_.end()) {
        std::swap(*found, free_.back());
        std::shared_ptr<DeviceMemory> memory = std::move(free_.back());
        free_.pop_back();
        return memory;
      }
    }
    device_.enter();
    return device_.allocate_host(n_bytes);
  }

  Device& device_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<DeviceMemory>> free_;
};

BatchStaging::BatchStaging(Device& device, const Graph& graph)
    : pool_(std::make_shared<Pool>(device)) {
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::batch) dtypes_[input.name] = graph.type(input.value).dtype;
  }
}

void BatchStaging::stage(Batch& batch) const {
  for (HostTensor& tensor : batch.tensors) {
    auto* numbers = std::get_if<std::vector<float>>(&tensor.values);
    const auto dtype = dtypes_.find(tensor.spec.name);
    if (numbers == nullptr || dtype == dtypes_.end() || tensor.spec.fill != Fill::zero) continue;
    const auto n_bytes = static_cast<size_t>(bytes_of(dtype->second, std::ssize(*numbers)));
    if (std::cmp_less(n_bytes, kMin)) continue;
    const std::shared_ptr<std::byte> to = pool_->take(static_cast<int64_t>(n_bytes));
    write_numbers(*numbers, dtype->second, {to.get(), n_bytes});
    tensor.staged = {to, n_bytes};
    numbers->clear();
    numbers->shrink_to_fit();
  }
}

}  // namespace octet
