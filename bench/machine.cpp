#include "bench/machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "bench/node_runner.h"
#include "ir/builder.h"

namespace octet {
namespace {

constexpr int64_t kBytes = int64_t{256} << 20;  // far more than caches hold

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<double> round_times(const std::function<void()>& run, const Timing& timing) {
  const auto wait = [&] {
    if (timing.device != nullptr) timing.device->synchronize();
  };
  if (timing.device != nullptr) {  // a GPU launches the first and records the second
    run();
    run();
    wait();
  }
  const auto warm_up = Clock::now();
  run();
  wait();
  const double once_ms = std::max(ms_since(warm_up), 1e-6);
  const int64_t repeats =
      std::clamp(static_cast<int64_t>(timing.round_ms / once_ms), int64_t{1}, timing.max_repeats);
  std::vector<double> times;
  for (int round = 0; round < timing.rounds; ++round) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < repeats; ++i) run();
    wait();
    times.push_back(ms_since(start) / static_cast<double>(repeats));
  }
  return times;
}

double gemm_flops_per_s(const BenchMachine& machine, Dtype dtype) {
  const int64_t size = machine.is_gpu() ? 8192 : 2048;
  Graph graph;
  graph.phase = Phase::typed;
  Builder builder(graph);
  const TensorType type{.dtype = dtype, .shape = {size, size}};
  const ValueId a = builder.input(InputKind::batch, "a", type);
  const ValueId b = builder.input(InputKind::batch, "b", type);
  if (is_quantized(dtype)) {
    const TensorType scale{.dtype = Dtype::f32, .shape = {}};
    const ValueId scale_a = builder.input(InputKind::batch, "scale_a", scale);
    const ValueId scale_b = builder.input(InputKind::batch, "scale_b", scale);
    builder.output("y", builder.emit_typed(OpCode::gemm, GemmAttrs{.trans_b = true},
                                           {a, b, kNoValue, scale_a, scale_b}, {Dtype::bf16})[0]);
  } else {
    builder.output("y", builder.gemm(a, b, {}));
  }
  NodeRunner gemm(graph, graph.nodes.front(), *machine.backend.device, *machine.backend.catalogue);
  const double ms = best_ms([&] { gemm.run(); }, {.device = machine.backend.device.get(),
                                                  .rounds = machine.ceiling_rounds});
  const auto n = static_cast<double>(size);
  return 2.0 * n * n * n / (ms / 1000);
}

double device_copy_bytes_per_s(const BenchMachine& machine) {
  constexpr int64_t kDeviceBytes = int64_t{1} << 30;
  Device& device = *machine.backend.device;
  const auto from = device.allocate(kDeviceBytes), to = device.allocate(kDeviceBytes);
  device.fill_zero(from->data(), kDeviceBytes);
  const double ms = best_ms([&] { device.copy_within(to->data(), from->data(), kDeviceBytes); },
                            {.device = &device, .rounds = machine.ceiling_rounds});
  return 2.0 * static_cast<double>(kDeviceBytes) / (ms / 1000);
}

}  // namespace

BenchRow BenchMachine::row(std::string name, std::string shape) const {
  BenchRow result;
  result.name = std::move(name);
  result.shape = std::move(shape);
  result.isa = isa;
  result.threads = backend.pool->n_threads();
  return result;
}

double copy_bytes_per_s(const BenchMachine& machine) {
  if (machine.is_gpu()) return device_copy_bytes_per_s(machine);
  std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes);
  double least_ms = std::numeric_limits<double>::infinity();
  for (const int64_t n_blocks : {kBytes >> 20, int64_t{machine.backend.pool->n_threads()}}) {
    const int64_t block = (kBytes + n_blocks - 1) / n_blocks;
    const auto copy = [&](int64_t tile, int) {
      const int64_t begin = tile * block, end = std::min(kBytes, begin + block);
      if (begin < end)
        std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    };
    const double ms = best_ms([&] { machine.backend.pool->run(n_blocks, copy); },
                              {.rounds = machine.ceiling_rounds});
    least_ms = std::min(least_ms, ms);
  }
  return 2.0 * static_cast<double>(kBytes) / (least_ms / 1000);
}

double update_bytes_per_s(const BenchMachine& machine) {
  if (machine.is_gpu()) return 0;
  std::vector<uint64_t> words(kBytes / sizeof(uint64_t), 1);
  constexpr int64_t kBlock = int64_t{1} << 17;
  const int64_t n_blocks = static_cast<int64_t>(words.size()) / kBlock;
  const auto update = [&](int64_t tile, int) {
    uint64_t* block = words.data() + tile * kBlock;
    for (int64_t i = 0; i < kBlock; ++i) block[i] += 3;
  };
  const double ms = best_ms([&] { machine.backend.pool->run(n_blocks, update); },
                            {.rounds = machine.ceiling_rounds});
  return 2.0 * static_cast<double>(kBytes) / (ms / 1000);
}

double median_ms(const std::function<void()>& run, const Timing& timing) {
  return median(round_times(run, timing));
}

double best_ms(const std::function<void()>& run, const Timing& timing) {
  return std::ranges::min(round_times(run, timing));
}

double median(std::vector<double> values) {
  CHECK(!values.empty());
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Ceilings measure_ceilings(const BenchMachine& machine) {
  return {.bytes_per_s = std::max(copy_bytes_per_s(machine), update_bytes_per_s(machine)),
          .f32_flops_per_s = gemm_flops_per_s(machine, Dtype::f32),
          .narrow_flops_per_s = gemm_flops_per_s(machine, Dtype::bf16),
          .code_flops_per_s = machine.is_gpu() ? gemm_flops_per_s(machine, Dtype::e4m3) : 0};
}

}  // namespace octet
