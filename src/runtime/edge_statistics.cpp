#include "runtime/edge_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/arrays.h"
#include "formats/table.h"
#include "ir/op_def.h"
#include "ir/ops/quantize_layers.h"
#include "ir/ops/slots.h"
#include "ir/states.h"
#include "plan/updates.h"
#include "runtime/layer_maximum.h"
#include "runtime/magnitudes.h"

namespace octet {
namespace {

// Sums over elements, each so many times.
struct Sums {
  int64_t n_all = 0, n = 0, n_zero = 0, n_largest = 0;
  double squares = 0, amax = 0;

  void add(double x, int64_t times, double largest) {
    n_all += times;
    if (!std::isfinite(x)) return;
    n += times;
    squares += x * x * static_cast<double>(times);
    if (times > 0) amax = std::max(amax, std::fabs(x));
    if (x == 0) n_zero += times;
    if (std::fabs(x) >= largest) n_largest += times;
  }
};

template <typename Code, typename Decode>
Sums sums_of(std::span<const std::byte> bytes, double largest, const Decode& decoded) {
  Sums sums;
  for (size_t at = 0; at + sizeof(Code) <= bytes.size(); at += sizeof(Code)) {
    Code code;
    std::memcpy(&code, bytes.data() + at, sizeof(Code));
    sums.add(decoded(code), 1, largest);
  }
  return sums;
}

Sums sums_of_8_bits(const CodeCounts& counts, Dtype dtype, double largest) {
  Sums sums;
  for (uint32_t code = 0; code < counts.size(); ++code)
    sums.add(static_cast<double>(decode(dtype, code)), counts[code], largest);
  return sums;
}

double share(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

}  // namespace

std::string gemm_name(const Node& gemm) {
  const std::string origin = gemm.tag.origin.empty() ? "gemm" : gemm.tag.origin;
  return gemm.tag.layer < 0 ? origin : layer_name(gemm.tag) + "." + origin;
}

std::optional<FormatWindow> format_window(Dtype dtype) {
  switch (dtype) {
    case Dtype::e4m3:
      return FormatWindow{-4, 6};
    case Dtype::e5m2:
      return FormatWindow{-12, 13};
    case Dtype::fp16:
      return FormatWindow{-12, 12};
    default:
      return std::nullopt;
  }
}

double EdgeStatistics::drift() const {
  return rms > 0 ? std::log2(rms / scale) : -std::numeric_limits<double>::infinity();
}

int EdgeStatistics::rescale() const {
  const auto window = format_window(dtype);
  const double at = drift();
  if (window && nonfinite > 0)
    return static_cast<int>(std::lround((window->low - window->high) / 2));
  if (!window || !std::isfinite(at)) return 0;
  const bool is_lost = at < window->low || (at > window->high && saturated > kSaturatedGradients);
  if (!is_lost) return 0;
  return static_cast<int>(std::lround(window->middle() - at));
}

bool EdgeStatistics::is_forward() const {
  return edge.ends_with(".x") || edge.ends_with(".w") || edge.ends_with(".y");
}

int EdgeStatistics::rescale_of_maximum(FlushedCodes flushed) const {
  constexpr double kFlushed = 2e-3;  // a normal loses less at the scale that its RMS predicts
  constexpr double kRounded = 1.04;  // what the largest code stands for
  if (!is_quantized(dtype) || nonfinite > 0) return rescale();
  const double largest = static_cast<double>(max_finite(dtype)) * scale;
  const bool saturates = saturated > (is_forward() ? 0 : kSaturatedGradients) &&
                         (!source_amax || *source_amax > kRounded * largest);
  if (saturates && !source_amax) return dtype == Dtype::e5m2 ? -8 : -3;  // and looked at again
  const double known = source_amax.value_or(amax);
  if (!std::isfinite(known) || known == 0) return rescale();
  const auto up_to = [&](double share) {
    return static_cast<int>(std::floor(std::log2(largest * share / known)));
  };
  const int to_half = up_to(1.0 / 2);  // so that data may grow
  if (saturates) return to_half;
  const bool begins = flushed == FlushedCodes::counted;
  const bool is_made = edge.ends_with(".x") || edge.ends_with(".y");
  const int raised = begins && is_made ? std::max(up_to(1.0 / 8), std::min(to_half, 0)) : to_half;
  const bool is_flushed = begins && is_forward() && zeros >= kFlushed;
  if (is_flushed || amax == 0) return raised;
  return std::min(rescale(), std::max(raised, 0));
}

int EdgeStatistics::room() const {
  const double known = source_amax.value_or(amax);
  if (!is_quantized(dtype) || !std::isfinite(known) || (saturated > 0 && !source_amax)) return 0;
  if (known == 0) return std::numeric_limits<int>::max();
  const double largest = static_cast<double>(max_finite(dtype)) * scale;
  return std::max(0, static_cast<int>(std::floor(std::log2(largest / 2 / known))));
}

EdgeStatistics count_edge(Dtype dtype, std::span<const std::byte> bytes, ThreadPool& pool) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool is_narrow = is_quantized(dtype) || dtype == Dtype::fp16;
  const double largest = is_narrow ? static_cast<double>(max_finite(dtype)) : infinity;
  Sums sums;
  if (dtype == Dtype::f32) {
    sums = sums_of<float>(bytes, largest, [](float x) { return static_cast<double>(x); });
  } else if (bytes_of(dtype, 1) == 2) {
    visit_format(dtype, [&]<Dtype D>() {
      sums = sums_of<uint16_t>(bytes, largest,
                               [](uint16_t code) { return static_cast<double>(decode<D>(code)); });
    });
  } else {
    sums = sums_of_8_bits(code_counts(pool, bytes), dtype, largest);
  }
  return {.dtype = dtype,
          .n = sums.n,
          .rms = sums.n > 0 ? std::sqrt(sums.squares / static_cast<double>(sums.n)) : 0,
          .amax = sums.amax,
          .zeros = share(sums.n_zero, sums.n_all),
          .saturated = share(sums.n_largest, sums.n_all),
          .nonfinite = share(sums.n_all - sums.n, sums.n_all)};
}

StepObserver EdgeWatch::observer() {
  return [this](const Plan& plan, const PlanStep& step, bool before) { look(plan, step, before); };
}

void EdgeWatch::look(const Plan& plan, const PlanStep& step, bool before) {
  if (before && &step == plan.steps.data()) losses_.clear(), readers_.clear();
  const Node& node = plan.graph.node(step.node);
  if (!before) {
    if (op_def(node.op).is_quantizer) look_at_quantizer(plan, node);
    if (const ValueId scale = node.in(op_def(node.op).store.given_scale); scale != kNoValue)
      look_at_result(plan, node, node.out(0), scale);
    if (quantized_layer(node.op) != nullptr) look_at_layer(plan, node);
    return;
  }
  const bool for_scales = looks_ == EdgeLooks::scales;
  if (const GraphInput* parameter = updated_parameter(plan.graph, node); parameter && !for_scales)
    return look_at_update(plan, node, *parameter);
  if (for_scales && node.tag.layer < 0) return;
  const GemmRole role = linear_role(node);
  if (role == GemmRole::forward) {
    const std::string linear = gemm_name(node);
    groups_.emplace(linear, readers_.emplace(node.in(Gemm::a), linear).first->second);
    look_at_operand(plan, node, Gemm::a, Gemm::scale_a, "x");
    look_at_operand(plan, node, Gemm::b, Gemm::scale_b, "w");
  } else if (role == GemmRole::dgrad || role == GemmRole::wgrad) {
    // The gradient is the operand that is no parameter: of wgrad, the one that is not x.
    const bool a = role == GemmRole::wgrad || plan.graph.input_of(node.in(Gemm::a)) == nullptr;
    look_at_operand(plan, node, a ? Gemm::a : Gemm::b, a ? Gemm::scale_a : Gemm::scale_b, "dy");
  }
}

void EdgeWatch::look_at_operand(const Plan& plan, const Node& gemm, size_t factor, size_t scale,
                                std::string_view what) {
  const std::string name = fmt::format("{}.{}", gemm_name(gemm), what);
  if (!seen_.insert(name).second) return;
  const ValueId id = gemm.in(factor);
  const bool is_quantized_operand = is_quantized(plan.graph.type(id).dtype);
  // A factor on high-precision operands is the product's own, not the data's.
  EdgeStatistics edge =
      count_codes(plan, id, is_quantized_operand ? gemm.in(scale) : ValueId{kNoValue});
  const bool is_lost = is_quantized_operand && (edge.saturated > 0 || edge.amax == 0);
  if (what == "w" && is_lost && !edge.source_amax) edge.source_amax = maximum_of_weight(plan, id);
  if (is_quantized_operand) {
    const auto group = groups_.find(gemm_name(gemm));
    if (group != groups_.end()) edge.group = group->second;
  }
  add(std::move(edge), name, gemm.tag);
}

EdgeStatistics EdgeWatch::count_codes(const Plan& plan, ValueId codes, ValueId scale) {
  EdgeStatistics edge = count_edge(plan.graph.type(codes).dtype, bytes(plan, codes), pool_);
  if (scale != kNoValue) {
    edge.scale = static_cast<double>(scalar(plan, scale));
    edge.rms *= edge.scale, edge.amax *= edge.scale;
  }
  if (const auto loss = losses_.find(codes); loss != losses_.end()) {
    edge.source_amax = loss->second.amax;
    if (loss->second.has_noise) edge.snr = loss->second.snr;
  }
  return edge;
}

// Maximum of codes kept from one update to the next: the weight itself lies beside them.
std::optional<double> EdgeWatch::maximum_of_weight(const Plan& plan, ValueId codes) {
  const GraphInput* copy = plan.graph.input_of(codes);
  if (copy == nullptr) return std::nullopt;
  const StateKey key = state_key(copy->name, plan.graph.type(codes).dtype);
  const GraphInput* weight = plan.graph.find_input(key.owner);
  if (weight == nullptr) return std::nullopt;
  const Dtype dtype = plan.graph.type(weight->value).dtype;
  return largest_magnitude(pool_, dtype, bytes(plan, weight->value), Infinities::left_out);
}

// A linear's result that is stored in codes. What another linear reads of it is that one's input.
void EdgeWatch::look_at_result(const Plan& plan, const Node& gemm, ValueId codes, ValueId scale) {
  const std::string name = gemm_name(gemm) + ".y";
  if (linear_role(gemm) != GemmRole::forward || seen_.contains(name)) return;
  const bool is_input = std::ranges::any_of(plan.graph.nodes, [&](const Node& node) {
    return node.op == OpCode::gemm && (node.in(Gemm::a) == codes || node.in(Gemm::b) == codes);
  });
  if (is_input) return;
  seen_.insert(name);
  add(count_codes(plan, codes, scale), name, gemm.tag);
}

// The maximum where codes do not tell it.
void EdgeWatch::look_at_layer(const Plan& plan, const Node& layer) {
  if (layer.tag.role != Role::forward) return;  // made again for gradients
  const ValueId q = layer.out(kLayerQ);
  const EdgeStatistics codes = count_codes(plan, q, kNoValue);
  if (codes.saturated == 0 && codes.amax > 0) return;
  const auto amax = layer_maximum(
      plan.graph, layer, [&](ValueId id) { return bytes(plan, id); }, pool_);
  if (amax) losses_[q] = {.snr = 0, .amax = *amax, .has_noise = false};
}

// The codes' loss of their operand, taken while both are in memory.
void EdgeWatch::look_at_quantizer(const Plan& plan, const Node& quantizer) {
  if (plan.graph.type(quantizer.out(Quantize::q)).layout.transposed) return;
  const ValueId x = quantizer.in(Quantize::x), q = quantizer.out(Quantize::q);
  losses_[q] = looks_ == EdgeLooks::scales
                   ? Loss{.amax = largest_magnitude(pool_, plan.graph.type(x).dtype, bytes(plan, x),
                                                    Infinities::counted)}
                   : loss_of(plan, quantizer);
  const Node* gemm = plan.graph.producer(x, OpCode::gemm);
  if (gemm != nullptr) look_at_result(plan, *gemm, q, quantizer.in(Quantize::scale));
}

EdgeWatch::Loss EdgeWatch::loss_of(const Plan& plan, const Node& quantizer) {
  const ValueId x = quantizer.in(Quantize::x), q = quantizer.out(Quantize::q);
  const auto wide = decode_values(plan.graph.type(x).dtype, bytes(plan, x));
  const auto codes = decode_values(plan.graph.type(q).dtype, bytes(plan, q));
  const auto scale = static_cast<double>(scalar(plan, quantizer.in(Quantize::scale)));
  double signal = 0, noise = 0, amax = 0;
  for (size_t i = 0; i < std::min(wide.size(), codes.size()); ++i) {
    const double value = static_cast<double>(wide[i]);
    const double error = static_cast<double>(codes[i]) * scale - value;
    signal += value * value, noise += error * error;
    amax = std::max(amax, std::fabs(value));
  }
  const bool has_noise = signal > 0 && noise > 0;
  return {has_noise ? 10 * std::log10(signal / noise) : 0, amax, has_noise};
}

// The gradient, and the states as the step before left them; what is quantized in runs means
// something by its run alone.
void EdgeWatch::look_at_update(const Plan& plan, const Node& node, const GraphInput& parameter) {
  const ValueId gradient = read_gradient(plan.graph, node);
  for (const ValueId id : node.operands) {
    if (id == kNoValue) continue;
    const GraphInput* input = plan.graph.input_of(id);
    const StateUse use = input == nullptr ? StateUse::none : input->key.use;
    const std::string_view what = id == gradient ? "grad:" : state_def(use).shown;
    const TensorType& type = plan.graph.type(id);
    const std::string name = std::string(what) + parameter.name;
    const bool is_whole = type.shape == plan.graph.type(parameter.value).shape;
    const bool is_run = is_quantized(type.dtype) && id != gradient;
    if (what.empty() || !is_whole || is_run || !seen_.insert(name).second) continue;
    add(count_edge(type.dtype, bytes(plan, id), pool_), name, node.tag);
  }
}

void EdgeWatch::add(EdgeStatistics edge, std::string name, const Tag& tag) {
  edge.edge = std::move(name);
  edge.tag = tag;
  edges_.push_back(std::move(edge));
}

float EdgeWatch::scalar(const Plan& plan, ValueId id) {
  float value = 0;
  std::memcpy(&value, bytes(plan, id).data(), sizeof(value));
  return value;
}

std::span<const std::byte> EdgeWatch::bytes(const Plan& plan, ValueId id) {
  const int64_t n_bytes = plan.graph.type(id).n_bytes();
  const auto n = static_cast<size_t>(n_bytes);
  if (n == 0) return {};
  if (copy_ == nullptr || copy_->bytes() < n_bytes) {
    copy_.reset();
    copy_ = arenas_.device().allocate_host(n_bytes);
  }
  arenas_.device().copy_out(copy_->data(), arenas_.address(plan, id), n_bytes);
  return {copy_->data(), n};
}

}  // namespace octet
