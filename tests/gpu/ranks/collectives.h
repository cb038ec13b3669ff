// The collectives of a few ranks, run by processes that are these ranks: on their devices, and on
// the CPU with its kernels (backends/cpu/ranks).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/philox.h"
#include "cli/common.h"
#include "cli/rank_processes.h"
#include "formats/bf16.h"
#include "formats/codec.h"
#include "gpu/parity/gpu.h"
#include "gpu/ranks/collectives_graph.h"
#include "plan/plan.h"
#include "runtime/executor.h"

namespace octet::test {

// Statuses that a rank's process ends with.
inline constexpr int kSame = 0, kDiffers = 42, kNoDevices = 43, kOtherLevels = 44;

// Values of one rank in one round. Those that all ranks must have alike are alike, squares are
// exact in double, and maxima meet a NaN.
inline std::vector<std::byte> values_of(const GraphInput& input, const TensorType& type, int rank,
                                        int round) {
  const bool is_scalar = type.shape.empty();
  const bool is_common = is_scalar || input.name.starts_with("common");
  const RandomStream random{.name = name_hash(input.name),
                            .seed = is_common ? 0 : static_cast<uint32_t>(rank),
                            .step = static_cast<uint32_t>(round)};
  const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
  for (size_t i = 0; i < bytes.size() / width; ++i) {
    float value = 4 * random.uniform(i) - 2;
    if (input.name.starts_with("squared")) value = std::round(8 * value) / 8;
    if (is_scalar) value = 0.3f + static_cast<float>(round);
    if (input.name.starts_with("largest")) value = std::abs(value);
    if (input.name.starts_with("largest") && rank == 1 && i % 7 == 3) value = std::nanf("");
    const uint32_t code = type.dtype == Dtype::boolean ? (rank == 1 && i % 3 == 0 ? 1 : 0)
                          : type.dtype == Dtype::bf16  ? bf16_from_f32(value)
                          : width == 4                 ? std::bit_cast<uint32_t>(value)
                                                       : encode(type.dtype, value);
    std::memcpy(bytes.data() + i * width, &code, width);
  }
  return bytes;
}

using Outputs = std::map<std::string, std::vector<std::byte>>;

// A replay of a captured graph from the second round on, where the device captures graphs.
inline std::vector<Outputs> run_rounds(const Graph& graph, Backend& backend, Group& group,
                                       int n_rounds) {
  Layout layout;
  layout.rank = group.rank();
  layout.add_inputs(graph);
  const Plan plan = make_plan(graph, layout, *backend.catalogue);
  Arenas arenas(*backend.device, plan.arena_bytes);
  arenas.connect(group);
  for (int arena = 0; arena < kArenaCount; ++arena) {
    const auto kind = static_cast<Arena>(arena);
    const std::vector<std::byte> poison(static_cast<size_t>(arenas.bytes(kind)), std::byte{0x5A});
    arenas.device().copy_in(arenas.arena(kind), poison.data(), arenas.bytes(kind));
  }
  gather_value(&group, 0);
  BoundPlan bound(plan, *backend.catalogue, arenas);
  std::vector<Outputs> rounds;
  for (int round = 0; round < n_rounds; ++round) {
    for (const GraphInput& input : graph.inputs) {
      const auto bytes = values_of(input, graph.type(input.value), group.rank(), round);
      bound.write_input(input.name, bytes.data(), std::ssize(bytes));
    }
    bound.run();
    Outputs& outputs = rounds.emplace_back();
    for (const GraphOutput& output : graph.outputs) {
      std::vector<std::byte>& bytes = outputs[output.name];
      bytes.resize(static_cast<size_t>(graph.type(output.value).n_bytes()));
      bound.read_output(output.name, bytes.data(), std::ssize(bytes));
    }
  }
  gather_value(&group, 0);  // none goes while another one still reads its memory
  return rounds;
}

// The first byte that differs, as text; empty: none.
inline std::string difference(const std::vector<Outputs>& got, const std::vector<Outputs>& want) {
  for (size_t round = 0; round < want.size(); ++round) {
    for (const auto& [name, bytes] : want[round]) {
      const std::vector<std::byte>& other = got[round].at(name);
      const auto at = std::ranges::mismatch(bytes, other).in1 - bytes.begin();
      if (at == std::ssize(bytes)) continue;
      const auto i = static_cast<size_t>(at);
      return fmt::format("round {}, {}: byte {} is {:#04x}, expected {:#04x}", round, name, i,
                         std::to_integer<int>(other[i]), std::to_integer<int>(bytes[i]));
    }
  }
  return "";
}

struct Comparison {
  int n_ranks = 2;
  int n_hosts = 1, ranks_a_host = 0;  // RankExchange
  bool is_flat = false;
  bool has_norm = true;      // a barrier more, inside the run of collectives
  bool has_in_place = true;  // a second run of collectives, behind what computes their operands
  RankTransport transport = RankTransport::peer;
  std::function<void()> before = [] {};  // each rank calls it first

  // How many ranks of a host are added up first.
  int expected_levels() const { return ranks_a_host > 1 && !is_flat ? ranks_a_host : 0; }
};

// The emulated module is NCCL's stand-in as well.
inline std::string nccl_library() {
  const char* const named = std::getenv("OCTET_NCCL");
  if (named != nullptr) return named;
  return is_emulated() ? gpu_module() : "";
}

// Forks the ranks. What they end with: kSame, kDiffers, kNoDevices, kOtherLevels, or the
// status of an error.
inline int compare_collectives(const Comparison& what) {
  constexpr int kRounds = 4;
  return run_rank_processes(what.n_ranks, [&](Group& group, const Launch&) {
    what.before();
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);  // as cli/backend.cpp says
    std::unique_ptr<Backend> gpu;
    try {
      gpu = std::make_unique<Backend>(cuda::make_backend({.module = gpu_module(),
                                                          .device = group.rank(),
                                                          .n_threads = 1,
                                                          .nccl = nccl_library()}));
    } catch (const Error&) {  // there are not as many
    }
    for (const int has_one : gather_value(&group, gpu != nullptr ? 1 : 0)) {
      if (has_one == 0) throw ExitStatus{kNoDevices};
    }
    RankExchange exchange = exchange_of(group);
    exchange.n_hosts = what.n_hosts;
    exchange.ranks_a_host = what.ranks_a_host;
    exchange.is_flat = what.is_flat;
    exchange.transport = what.transport;
    gpu->device->join(exchange);
    const int64_t ranks_a_host = gpu->device->ranks_a_host();
    if (ranks_a_host != what.expected_levels()) throw ExitStatus{kOtherLevels};
    const CollectivesGraph collectives(what.n_ranks, ranks_a_host, what.has_norm,
                                       what.has_in_place);
    const auto got = run_rounds(collectives.graph(), *gpu, group, kRounds);
    Backend cpu = cpu::make_backend(1, cpu::Isa::scalar, cpu::RowSums::library, &group);
    const auto want = run_rounds(collectives.graph(), cpu, group, kRounds);
    const std::string differs = difference(got, want);
    if (!differs.empty()) fmt::print(stderr, "rank {}: {}\n", group.rank(), differs);
    for (const int one : gather_value(&group, differs.empty() ? 0 : 1)) {
      if (one != 0) throw ExitStatus{kDiffers};
    }
  });
}

}  // namespace octet::test
