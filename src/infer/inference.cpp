#include "infer/inference.h"

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "compile/budget.h"
#include "formats/codec.h"
#include "infer/model_spec.h"

namespace octet {
namespace {

ProgramOptions inference_options(const ModelSpec& spec, const std::string& recipe,
                                 const BatchSize& size) {
  ProgramOptions options;
  options.forward = forward_builder(spec);
  options.recipe = recipe;
  options.train = size;
  options.inference_only = true;
  return options;
}

void expect_room(const DeviceInfo& info, const int64_t (&lane_bytes)[kLaneCount],
                 const Plan& plan) {
  const int64_t bytes = std::accumulate(std::begin(lane_bytes), std::end(lane_bytes), int64_t{0});
  if (bytes <= info.memory_bytes) return;
  throw Error(ErrorCode::device,
              "[memory] expected at most {} bytes ({}, available on {}), got a plan of {} bytes "
              "({}), the most of it {}; take a smaller batch or shorter sequences",
              info.memory_bytes, bytes_text(static_cast<double>(info.memory_bytes)), info.name,
              bytes, bytes_text(static_cast<double>(bytes)), largest_roles_text(plan));
}

}  // namespace

std::vector<std::byte> encode_weights(std::span<const float> values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  encode_weights(values, dtype, bytes);
  return bytes;
}

void encode_weights(std::span<const float> values, Dtype dtype, std::span<std::byte> out) {
  CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::fp16);
  CHECK(out.size() == values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  if (dtype == Dtype::f32) {
    if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = dtype == Dtype::bf16
                          ? bf16_from_f32(values[i])
                          : static_cast<uint16_t>(encode<Dtype::fp16>(values[i], Rounding::rne));
    std::memcpy(out.data() + 2 * i, &code, 2);
  }
}

Inference::Inference(const ModelSpec& spec, const std::string& recipe,
                     std::span<const FunctionKey> functions, Device& device, Catalogue& catalogue)
    : spec_(resolved(spec)),
      program_(inference_options(spec, recipe, functions.front().size), catalogue,
               {functions.begin(), functions.end()}) {
  for (const FunctionKey& f : functions) program_.plan(f.name, f.size);
  int64_t lane_bytes[kLaneCount];
  program_.lane_bytes(lane_bytes);
  expect_room(device.info(), lane_bytes, program_.plan(functions[0].name, functions[0].size));
  arenas_ = std::make_unique<Arenas>(device, lane_bytes);
  for (const FunctionKey& f : functions)
    bound_[f] = std::make_unique<BoundPlan>(program_.plan(f.name, f.size), catalogue, *arenas_);
}

void Inference::load(const WeightReader& weights) {
  Device& device = arenas_->device();
  const std::vector<ParameterSpec> parameters = model_parameters(spec_);
  const int n_threads = device.info().n_threads;
  std::vector<std::unique_ptr<DeviceMemory>> buffers(static_cast<size_t>(n_threads));
  read_in_pieces(weights, parameters, n_threads, [&](const WeightPiece& piece) {
    const Layout::Slot& slot = program_.layout().slots.at(piece.parameter.name);
    CHECK(slot.type.n_elems() == n_elems(piece.parameter.shape));
    const int64_t width = dtype_bytes(slot.type.dtype);
    const int64_t n_bytes = static_cast<int64_t>(piece.values.size()) * width;
    auto& buffer = buffers[static_cast<size_t>(piece.thread)];
    if (!buffer || buffer->bytes() < n_bytes) buffer = device.allocate_host(n_bytes);
    encode_weights(piece.values, slot.type.dtype,
                   std::span(buffer->data(), static_cast<size_t>(n_bytes)));
    std::byte* to = arenas_->lane(slot.lane) + slot.offset + piece.first * width;
    device.copy_in(to, buffer->data(), n_bytes);
  });
}

BoundPlan& Inference::function(std::string_view name, const BatchSize& size) {
  const auto it = bound_.find({name, size});
  CHECK(it != bound_.end());
  return *it->second;
}

std::vector<float> Inference::read_logits(const BoundPlan& logits, int64_t row) {
  const Graph& graph = logits.plan().graph;
  const TensorType& type = graph.type(graph.find_output("logits")->value);
  CHECK(row >= 0 && row < type.shape.at(0));
  CHECK(type.dtype == Dtype::f32 || type.dtype == Dtype::bf16);
  const int64_t row_bytes = type.shape.at(1) * dtype_bytes(type.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes));
  arenas_->device().copy_out(bytes.data(), logits.output("logits") + row * row_bytes, row_bytes);
  std::vector<float> values(static_cast<size_t>(type.shape.at(1)));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t code = 0;
    if (type.dtype == Dtype::f32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    } else {
      std::memcpy(&code, bytes.data() + 2 * i, 2);
      values[i] = f32_from_bf16(code);
    }
  }
  return values;
}

int64_t Inference::planned_bytes() const {
  int64_t total = 0;
  for (int lane = 0; lane < kLaneCount; ++lane) total += arenas_->bytes(static_cast<Lane>(lane));
  return total;
}

}  // namespace octet
