#include "train/prove_products.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "compile/program.h"
#include "formats/codec.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "plan/tensor_gemm.h"
#include "runtime/known_numbers.h"
#include "train/one_node.h"
#include "train/proof_device.h"
#include "train/prove_run.h"
#include "train/sampled_gemm.h"

namespace octet {
namespace {

constexpr int64_t kSide = 64, kBlock = 128;
constexpr double kMean = 0.3;  // of standard deviations

// A period of random codes, which operands repeat: it divides no width of a model.
std::vector<std::byte> random_codes(const TensorType& type, uint32_t number) {
  constexpr int64_t kPeriod = 65'521;
  const RandomStream random{.name = name_hash("products"), .step = number};
  const Dtype dtype = type.dtype;
  const double deviation = is_quantized(dtype) ? find_format(dtype).amax_target / 5.0 : 1.0;
  const auto width = static_cast<size_t>(bytes_of(dtype, 1));
  std::vector<std::byte> period;
  for (uint64_t i = 0; i < static_cast<uint64_t>(kPeriod); ++i) {
    // A sum of 12 uniform numbers is near to normal.
    double normal = -6 + kMean;
    for (uint64_t j = 0; j < 12; ++j) normal += random.uniform(12 * i + j);
    const auto x = static_cast<float>(normal * deviation);
    const uint32_t code = dtype == Dtype::f32 ? bits_of(x) : encode(dtype, x);
    const auto* bytes = reinterpret_cast<const std::byte*>(&code);
    period.insert(period.end(), bytes, bytes + width);
  }
  std::vector<std::byte> all(static_cast<size_t>(type.n_bytes()));
  for (size_t at = 0; at < all.size(); at += period.size())
    std::memcpy(all.data() + at, period.data(), std::min(period.size(), all.size() - at));
  return all;
}

std::vector<std::byte> random_scales(const TensorType& type, uint32_t number) {
  const RandomStream random{.name = name_hash("scales"), .step = number};
  std::vector<std::byte> all;
  for (uint64_t i = 0; i < static_cast<uint64_t>(type.n_stored()); ++i) {
    const float x = std::exp2(-9 + 2 * random.uniform(i));
    const uint32_t code = type.dtype == Dtype::f32 ? bits_of(x)
                          : type.dtype == Dtype::e8m0
                              ? static_cast<uint32_t>(118 + random.bits(i) % 4)
                              : encode(type.dtype, x);
    const auto* bytes = reinterpret_cast<const std::byte*>(&code);
    all.insert(all.end(), bytes, bytes + bytes_of(type.dtype, 1));
  }
  return all;
}

bool is_scale(size_t slot) {
  return slot == Gemm::scale_a || slot == Gemm::scale_b || slot == Gemm::scale_y;
}

int64_t bytes_of_graph(const Graph& graph) {
  int64_t n = 0;
  for (const Value& value : graph.values) n += value.type.n_bytes();
  return n;
}

std::vector<SamplePlace> places_of(const SampledGemm& sample) {
  const auto last = [](int64_t n) { return (n - kSide) / kBlock * kBlock; };
  const RandomStream random{.name = name_hash("place"), .step = 1};
  const auto any = [&](int64_t n, uint64_t word) {
    const auto blocks = static_cast<uint64_t>(last(n) / kBlock + 1);
    return static_cast<int64_t>(random.bits(word) % blocks) * kBlock;
  };
  return {{0, 0},
          {last(sample.rows()), last(sample.cols())},
          {any(sample.rows(), 0), any(sample.cols(), 1)}};
}

double value_of(Dtype dtype, uint32_t bits) {
  return dtype == Dtype::f32 ? float_of(bits) : decode(dtype, bits);
}
double largest_of(const std::vector<std::byte>& y, Dtype dtype) {
  double largest = 0;
  for (int64_t i = 0; i < kSide * kSide; ++i) {
    const double value = std::abs(value_of(dtype, bits_at(y.data(), i, bytes_of(dtype, 1))));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}
bool are_near(Dtype dtype, uint32_t got, uint32_t want, double bound) {
  const double x = value_of(dtype, got), y = value_of(dtype, want);
  return std::abs(x - y) <= tolerance_of(Closeness::near, dtype, y, bound);
}

// The device's result of a node, beside the rule's.
ProductProof prove_product(const OneNode& one, SampledGemm& sample, const Backend& device) {
  const Graph& graph = one.graph();
  const ProofDevice made = prepare_proof(graph, device);
  BoundGraph& alone = *made.alone;
  std::map<size_t, std::vector<std::byte>> operands;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const size_t slot = one.operands[i];
    const TensorType& type = graph.type(graph.inputs[i].value);
    const auto number = static_cast<uint32_t>(slot + 1);
    auto& bytes = operands[slot] =
        is_scale(slot) ? random_scales(type, number) : random_codes(type, number);
    alone.bound.write_input(graph.inputs[i].name, bytes.data(), std::ssize(bytes));
  }
  alone.bound.run([](const Plan&, const PlanStep&, bool) {});
  const GraphOutput& output = graph.outputs.front();
  std::vector<std::byte> y(static_cast<size_t>(graph.type(output.value).n_bytes()));
  alone.bound.read_output(output.name, y.data(), std::ssize(y));

  const Node& node = graph.nodes.back();
  ProductProof proof{.kernel = {}, .m = sample.rows(), .n = sample.cols(), .k = sample.k()};
  for (const PlanStep& step : alone.plan.steps) {
    if (alone.plan.graph.node(step.node).op == OpCode::gemm) proof.kernel = step.kernel.name;
  }
  const auto read = [&](const std::vector<std::byte>& from, int64_t first,
                        std::span<std::byte> to) {
    std::memcpy(to.data(), from.data() + first, to.size());
  };
  const int64_t width = bytes_of(sample.dtype(), 1);
  const bool is_near = !made.why_own_sums.empty();
  proof.why_near = near_text(graph, made.why_own_sums);
  int64_t n_wrong = 0;
  std::string first;
  for (const SamplePlace place : places_of(sample)) {
    const auto want =
        sample.compute([&](size_t slot, int64_t begin,
                           std::span<std::byte> to) { read(operands.at(slot), begin, to); },
                       place);
    const auto got = sample.read_y(
        [&](size_t, int64_t begin, std::span<std::byte> to) { read(y, begin, to); }, place);
    const double bound = is_near ? relative_tolerance(graph) * largest_of(want, sample.dtype()) : 0;
    for (int64_t i = 0; i < kSide * kSide; ++i) {
      const uint32_t a = bits_at(got.data(), i, width), b = bits_at(want.data(), i, width);
      if (a == b) continue;
      ++proof.n_other;
      if (is_near && are_near(sample.dtype(), a, b, bound)) continue;
      if (n_wrong++ == 0)
        first = fmt::format("output ({}, {}): expected {:#x}, got {:#x}", place.row + i / kSide,
                            place.col + i % kSide, b, a);
    }
    proof.n_values += kSide * kSide;
  }
  if (n_wrong > 0) {
    throw Error(ErrorCode::device,
                "[prove] {}: {} of {} outputs of {} x {} x {} differ, first {} on {}; of {}",
                proof.kernel, n_wrong, proof.n_values, proof.m, proof.n, proof.k, first,
                device.device->info().name, print(graph, node));
  }
  return proof;
}

}  // namespace

std::vector<ProductProof> prove_products(const RunConfig& config, const ModelSpec& spec,
                                         const Backend& device, const Backend& cpu) {
  std::vector<ProductProof> proofs;
  std::set<std::string> known;
  const int64_t limit = std::min(kMaxProofBytes, device.device->info().memory_bytes / 2);
  for_planned_functions(config, spec, *device.catalogue, [&](const Plan& plan) {
    for (const PlanStep& step : plan.steps) {
      const Node& node = plan.graph.node(step.node);
      if (node.op != OpCode::gemm) continue;
      const OneNode one(plan.graph, node);
      if (!known.insert(print(one.graph())).second || bytes_of_graph(one.graph()) > limit) continue;
      const auto sample = SampledGemm::make(one.graph(), one.graph().nodes.back(), kSide, cpu);
      if (sample != nullptr) proofs.push_back(prove_product(one, *sample, device));
    }
  });
  return proofs;
}

}  // namespace octet
