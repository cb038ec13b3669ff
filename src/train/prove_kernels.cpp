#include "train/prove_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "compile/lower.h"
#include "formats/codec.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "math/moment.h"
#include "plan/plan.h"
#include "plan/tensor_gemm.h"
#include "train/one_node.h"
#include "train/proof_device.h"
#include "train/prove_bounds.h"

namespace octet {
namespace {

using Bytes = std::vector<std::byte>;

constexpr double kRoundingOfSums = 2e-5;  // of the magnitudes that are added, in f32
// The error of a moment beside the largest of its group: the hardware's log2 errs by 2^-22, a power
// of 16 multiplies that, and the moment before may be eight times as large.
constexpr double kErrorOfPowers = 0x1p-14;
constexpr uint32_t kNearAmax = 8;  // of a group's amax, in units of 2^-16 of its power of two

bool is_number(Dtype dtype) {
  return is_high_precision(dtype) || is_quantized(dtype);
}

template <typename T>
T element(const Bytes& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Integers by their bits.
double value_at(Dtype dtype, const Bytes& bytes, int64_t i) {
  if (dtype == Dtype::f32) return element<float>(bytes, i);
  const int64_t width = bytes_of(dtype, 1);
  if (!is_number(dtype)) {
    return width == 1   ? element<uint8_t>(bytes, i)
           : width == 2 ? element<int16_t>(bytes, i)
                        : element<int32_t>(bytes, i);
  }
  return decode(dtype, width == 1 ? element<uint8_t>(bytes, i) : element<uint16_t>(bytes, i));
}

// A graph on a back end: planned, and run on bytes.
class Runner {
 public:
  Runner(Graph graph, const Backend& backend)
      : graph_(std::move(graph)), made_(prepare_proof(graph_, backend)), alone_(*made_.alone) {}
  const Plan& plan() const { return alone_.plan; }
  const std::string& why_own_sums() const { return made_.why_own_sums; }

  std::vector<Bytes> run(const std::vector<Bytes>& inputs) {
    fill_memory();
    for (size_t i = 0; i < inputs.size(); ++i)
      alone_.bound.write_input(graph_.inputs[i].name, inputs[i].data(), std::ssize(inputs[i]));
    alone_.bound.run([](const Plan&, const PlanStep&, bool) {});  // launches each time
    std::vector<Bytes> results;
    for (const GraphOutput& output : graph_.outputs) {
      Bytes& bytes = results.emplace_back(static_cast<size_t>(graph_.type(output.value).n_bytes()));
      alone_.bound.read_output(output.name, bytes.data(), std::ssize(bytes));
    }
    return results;
  }

 private:
  void fill_memory() {
    for (int arena = 0; arena < kArenaCount; ++arena) {
      const auto kind = static_cast<Arena>(arena);
      const Bytes filled(static_cast<size_t>(alone_.arenas.bytes(kind)), std::byte{0xFF});
      alone_.arenas.device().copy_in(alone_.arenas.arena(kind), filled.data(),
                                     alone_.arenas.bytes(kind));
    }
  }

  Graph graph_;
  ProofDevice made_;
  BoundGraph& alone_;
};

const PlanStep& step_of_node(const Plan& plan, const Node& node) {
  for (const PlanStep& step : plan.steps) {
    if (plan.graph.node(step.node).op == node.op) return step;
  }
  throw Error(ErrorCode::internal, "[prove] a plan of one node lacks it");
}

}  // namespace

Closeness closeness_of(const NodeView& view, Arithmetic arithmetic) {
  const int wanted = capability_of(arithmetic);
  const bool adds_so =
      wanted != 0 && (view.target.capability == wanted || view.target.arithmetic == arithmetic);
  return adds_so && tensor_gemm(view, wanted) ? Closeness::same : op_def(view.node.op).closeness;
}

double tolerance_of(Closeness closeness, Dtype dtype, double want, double relative) {
  if (closeness == Closeness::same || !is_number(dtype)) return 0;
  if (is_quantized(dtype)) return 0.26 * std::abs(want) + 0x1p-9;
  const double own = dtype == Dtype::bf16 ? 0x1p-7 : dtype == Dtype::fp16 ? 0x1p-10 : 1e-5;
  return relative + own * std::abs(want);
}

double relative_tolerance(const Graph& graph) {
  double relative = kRoundingOfSums;
  for (const GraphInput& input : graph.inputs) {
    const Dtype dtype = graph.type(input.value).dtype;
    if (dtype == Dtype::bf16 || dtype == Dtype::fp16) relative = std::max(relative, 4e-3);
    if (is_quantized(dtype)) relative = std::max(relative, 2e-3);
  }
  const Node& node = graph.nodes.back();
  if (node.op != OpCode::attention_grad) return relative;
  // Terms cancel: where a loss compares the places of a row, those of dv nearly to 0.
  return std::get<AttentionAttrs>(node.attrs).mask == AttentionMask::full ? 16 * relative
                                                                          : 4 * relative;
}

std::string near_text(const Graph& graph, const std::string& why_own_sums) {
  if (why_own_sums.empty()) return {};
  return fmt::format("within {:.0e} of the largest result: {}", relative_tolerance(graph),
                     why_own_sums);
}

// A node that is prepared on both back ends.
class ProvingCatalogue::NodeProof {
 public:
  NodeProof(const OneNode& one, const Prover& prover)
      : one_(one.graph()),
        operands_(one.operands),
        results_(one.results),
        device_(one.graph(), prover.device),
        reference_backend_(prover.reference),
        reference_(lower(one.graph(), *prover.reference.catalogue), prover.reference),
        device_name_(prover.device.device->info().name),
        kernel_(step_of_node(device_.plan(), one_.nodes.back()).kernel.name),
        closeness_(closeness_of(
            {one_, one_.nodes.back(), prover.device.catalogue->target()},
            has_own_sums() ? Arithmetic::own : prover.reference.catalogue->target().arithmetic)),
        proof_(prover.proofs[has_own_sums() ? kernel_ + ", sums of its own" : kernel_]) {
    if (proof_.why_near.empty()) proof_.why_near = near_text(one_, device_.why_own_sums());
  }

  void launch(const LaunchArgs& args, const ProofObserver& observer) {
    std::vector<Bytes> inputs;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const std::byte* at = args.operands[operands_[i]];
      inputs.emplace_back(at, at + one_.type(one_.inputs[i].value).n_bytes());
    }
    const std::vector<Bytes> want = reference_.run(inputs);
    inputs_ = &inputs;
    magnitudes_.clear();
    const auto prove = [&] { compare(device_.run(inputs), want); };
    if (observer) {
      observer(kernel_, prove);
    } else {
      prove();
    }
    if (!is_proved_) ++proof_.n_nodes;
    is_proved_ = true;
    for (size_t i = 0; i < results_.size(); ++i) {
      std::byte* const to = args.results[results_[i]];
      if (to != nullptr) std::memcpy(to, want[i].data(), want[i].size());
    }
  }

 private:
  struct Element {
    size_t index;
    int64_t at;
  };
  // Values of one result, of the device and of the reference.
  struct Pair {
    size_t index;
    const Bytes &got, &want;
  };
  const TensorType& type(size_t index) const { return one_.type(one_.outputs[index].value); }
  bool has_own_sums() const { return !device_.why_own_sums().empty(); }

  void compare(const std::vector<Bytes>& got, const std::vector<Bytes>& want) {
    std::vector<size_t> metadata;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (type(i).dtype == Dtype::u32) metadata.push_back(i);
    }
    size_t n_moments = 0;
    for (size_t i = 0; i < results_.size(); ++i) {
      const Pair pair{i, got[i], want[i]};
      proof_.n_values += type(i).n_stored();
      if (type(i).dtype == Dtype::i16) {
        compare_masters({0, got[0], want[0]}, pair);
      } else if (type(i).granularity.kind == Granularity::Kind::run) {
        const size_t meta = metadata.at(n_moments++);
        compare_groups(pair, {meta, got[meta], want[meta]});
      } else if (type(i).dtype != Dtype::u32 || n_moments == 0) {
        if (pair.got != pair.want) compare(pair, {0, type(i).n_stored()}, largest_of(pair));
      }
    }
  }

  double largest_of(const Pair& pair) const {
    double largest = 0;
    for (int64_t i = 0; i < type(pair.index).n_stored(); ++i) {
      const double value = std::abs(value_at(type(pair.index).dtype, pair.want, i));
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
    return largest;
  }
  struct Range {
    int64_t first, end;
  };
  // The elements of the range, of a result whose largest magnitude this is.
  void compare(const Pair& pair, Range range, double largest) {
    const Dtype dtype = type(pair.index).dtype;
    const double relative = relative_tolerance(one_) * largest;
    for (int64_t i = range.first; i < range.end; ++i) {
      const double x = value_at(dtype, pair.got, i), y = value_at(dtype, pair.want, i);
      double allowed = tolerance_of(closeness_, dtype, y, relative);
      if (closeness_ == Closeness::near && !(std::abs(x - y) <= allowed))
        allowed = std::max(allowed, kRoundingOfSums * magnitude_of({pair.index, i}));
      judge({pair.index, i}, x, y, allowed);
    }
  }
  // The magnitude of what is added on the way to a value (train/prove_bounds.h), on the operands of
  // this launch; 0 where that is not known.
  double magnitude_of(Element element) {
    if (magnitudes_.empty()) find_magnitudes();
    const Bytes& of_result = magnitudes_[element.index];
    return of_result.empty() ? 0 : value_at(Dtype::f32, of_result, element.at);
  }
  void find_magnitudes() {
    magnitudes_.resize(results_.size());
    try {
      const Graph graph = magnitude_graph(one_);
      std::vector<Bytes> made = Runner(graph, reference_backend_).run(*inputs_);
      for (size_t i = 0; i < made.size(); ++i) {
        const auto at = std::ranges::find(one_.outputs, graph.outputs[i].name, &GraphOutput::name);
        magnitudes_[static_cast<size_t>(at - one_.outputs.begin())] = std::move(made[i]);
      }
    } catch (const Error&) {  // an op without a decomposition
    }
  }

  // Compares what BF16 weights and remainders are together.
  void compare_masters(const Pair& weights, const Pair& remainders) {
    const auto master = [&](const Bytes& weight, const Bytes& remainder, int64_t i) {
      return join_master(
          {.hi = element<uint16_t>(weight, i), .lo = element<int16_t>(remainder, i)});
    };
    const int64_t n = type(remainders.index).n_stored();
    double largest = 0;
    for (int64_t i = 0; i < n; ++i)
      largest = std::max<double>(largest, std::abs(master(weights.want, remainders.want, i)));
    for (int64_t i = 0; i < n; ++i) {
      const float x = master(weights.got, remainders.got, i),
                  y = master(weights.want, remainders.want, i);
      judge({remainders.index, i}, x, y,
            tolerance_of(Closeness::near, Dtype::f32, y, 2e-5 * largest));
    }
  }

  // Codes in groups with metadata.
  void compare_groups(const Pair& codes, const Pair& meta) {
    const int64_t n = type(codes.index).n_stored(), group = type(codes.index).granularity.size;
    const int64_t n_groups = type(meta.index).n_stored();
    if (codes.got == codes.want && meta.got == meta.want) return;
    int64_t n_other = 0;
    for (int64_t g = 0; g < n_groups; ++g) {
      const int64_t first = g * group, end = std::min(n, first + group);
      const auto x = element<uint32_t>(meta.got, g), y = element<uint32_t>(meta.want, g);
      // The last byte is 16 k; amax lies above it.
      const bool is_near = (x & 0xFF) == (y & 0xFF) && (x > y ? x - y : y - x) <= kNearAmax << 8;
      if (is_near) {
        compare_near_group(codes, {first, end}, x, y);
        continue;
      }
      if (++n_other > 1 + n_groups / 25) fail({meta.index, g}, x, y, 0);
      compare_decoded(codes, {first, end}, x, y);
    }
  }
  std::vector<float> decoded(size_t index, const Bytes& bytes, Range range, uint32_t meta) const {
    std::vector<uint8_t> group;
    for (int64_t i = range.first; i < range.end; ++i) group.push_back(element<uint8_t>(bytes, i));
    std::vector<float> values(group.size());
    const MomentCoding coding{.dtype = type(index).dtype, .expand = (meta & 0xFF) != kPlainK16};
    decode_moments(coding, meta, group, values);
    return values;
  }
  static float largest_of(const std::vector<float>& values) {
    return std::abs(
        *std::ranges::max_element(values, {}, [](float value) { return std::abs(value); }));
  }

  // The next code, or, where the terms of a moment cancel, as far as fast powers err of them.
  void compare_near_group(const Pair& codes, Range range, uint32_t got_meta, uint32_t want_meta) {
    std::vector<float> x, y;
    for (int64_t i = range.first; i < range.end; ++i) {
      const Dtype dtype = type(codes.index).dtype;
      const double got = value_at(dtype, codes.got, i), want = value_at(dtype, codes.want, i);
      const double allowed = tolerance_of(closeness_, dtype, want, 0);
      if (std::abs(got - want) <= allowed || std::isnan(want)) {
        judge({codes.index, i}, got, want, allowed);
        continue;
      }
      if (x.empty()) {
        x = decoded(codes.index, codes.got, range, got_meta);
        y = decoded(codes.index, codes.want, range, want_meta);
      }
      const auto at = static_cast<size_t>(i - range.first);
      judge({codes.index, i}, x[at], y[at], kErrorOfPowers * largest_of(y));
    }
  }
  void compare_decoded(const Pair& codes, Range range, uint32_t got_meta, uint32_t want_meta) {
    const std::vector<float> x = decoded(codes.index, codes.got, range, got_meta);
    const std::vector<float> y = decoded(codes.index, codes.want, range, want_meta);
    const float largest = largest_of(y);
    for (size_t i = 0; i < y.size(); ++i) {
      const double allowed = 0.5 * std::abs(y[i]) + 0x1p-8 * largest;
      judge({codes.index, range.first + static_cast<int64_t>(i)}, x[i], y[i], allowed);
    }
  }

  void judge(Element element, double got, double want, double allowed) {
    if (got == want || (std::isnan(got) && std::isnan(want))) return;
    ++proof_.n_other;
    const double distance = std::abs(got - want);
    if (!(distance <= allowed)) fail(element, got, want, allowed);
    proof_.worst = std::max(proof_.worst, distance / allowed);
  }
  [[noreturn]] void fail(Element element, double got, double want, double allowed) const {
    const Node& node = one_.nodes.back();
    throw Error(
        ErrorCode::device,
        "[prove] {}: {}, element {} of {}: expected {:.10g}, within {:.3g}, got {:.10g} on {}; of "
        "{}",
        kernel_, op_def(node.op).results[results_[element.index]].name, element.at,
        type(element.index).n_stored(), want, allowed, got, device_name_, print(one_, node));
  }

  Graph one_;
  std::vector<size_t> operands_, results_;
  Runner device_;
  const Backend& reference_backend_;
  Runner reference_;
  const std::vector<Bytes>* inputs_ = nullptr;  // of this launch
  std::vector<Bytes> magnitudes_;               // of its results, where they were asked for
  std::string device_name_, kernel_;
  Closeness closeness_;
  KernelProof& proof_;
  bool is_proved_ = false;
};

ProvingCatalogue::ProvingCatalogue(const Prover& prover)
    : Catalogue(prover.device.catalogue->target()), prover_(prover) {}

ProvingCatalogue::~ProvingCatalogue() = default;

std::optional<KernelChoice> ProvingCatalogue::choose(const Graph& graph, const Node& node) const {
  return prover_.device.catalogue->choose(graph, node);
}

LaunchFn ProvingCatalogue::prepare(const Graph& graph, const Node& node,
                                   const KernelChoice& /*choice*/) {
  const OneNode one(graph, node);
  std::shared_ptr<NodeProof>& proof = nodes_[print(one.graph())];
  if (proof == nullptr) proof = std::make_shared<NodeProof>(one, prover_);
  return [this, proof](const LaunchArgs& args) { proof->launch(args, prover_.observer); };
}

void ProvingCatalogue::strike(std::string row) {
  prover_.device.catalogue->strike(row);
  Catalogue::strike(std::move(row));
}

}  // namespace octet
