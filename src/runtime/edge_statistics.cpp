#include "runtime/edge_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/codec.h"
#include "formats/table.h"
#include "ir/op_def.h"

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

Sums sums_of_8_bits(std::span<const std::byte> bytes, Dtype dtype, double largest) {
  std::array<int64_t, 256> counts{};
  for (const std::byte code : bytes) ++counts[static_cast<size_t>(code)];
  Sums sums;
  for (uint32_t code = 0; code < counts.size(); ++code)
    sums.add(static_cast<double>(decode(dtype, code)), counts[code], largest);
  return sums;
}

double share(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

std::vector<float> values_of(Dtype dtype, std::span<const std::byte> bytes) {
  const auto width = static_cast<size_t>(bytes_of(dtype, 1));
  std::vector<float> values(bytes.size() / width);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t code = 0;
    std::memcpy(&code, bytes.data() + i * width, width);
    values[i] = dtype == Dtype::f32 ? std::bit_cast<float>(code) : decode(dtype, code);
  }
  return values;
}

std::string linear_of(const Node& gemm) {
  const std::string origin = gemm.tag.origin.empty() ? "gemm" : gemm.tag.origin;
  return gemm.tag.layer < 0 ? origin : fmt::format("layers.{}.{}", gemm.tag.layer, origin);
}

}  // namespace

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
  // A scale made from the maximum brings data that have no tails above the window, and loses none.
  constexpr double kLost = 1e-3;
  const bool is_lost = at < window->low || (at > window->high && saturated > kLost);
  if (!is_lost) return 0;
  return static_cast<int>(std::lround(window->middle() - at));
}

int EdgeStatistics::rescale_of_maximum() const {
  constexpr int kUnknown = -3;       // what saturates without its operand at hand
  constexpr double kFlushed = 2e-3;  // a normal loses less at the scale that its RMS predicts
  if (!is_quantized(dtype) || (saturated == 0 && zeros < kFlushed)) return rescale();
  if (!source_amax) return saturated > 0 ? kUnknown : rescale();
  if (!std::isfinite(*source_amax) || *source_amax == 0) return rescale();
  // Half the range, so that data may grow.
  const double largest = static_cast<double>(max_finite(dtype)) / 2;
  return static_cast<int>(std::floor(std::log2(largest * scale / *source_amax)));
}

EdgeStatistics count_edge(Dtype dtype, std::span<const std::byte> bytes) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool is_narrow = is_quantized(dtype) || dtype == Dtype::fp16;
  const double largest = is_narrow ? static_cast<double>(max_finite(dtype)) : infinity;
  Sums sums;
  if (dtype == Dtype::f32) {
    sums = sums_of<float>(bytes, largest, [](float x) { return static_cast<double>(x); });
  } else if (bytes_of(dtype, 1) == 2) {
    sums = sums_of<uint16_t>(bytes, largest, [dtype](uint16_t code) {
      return static_cast<double>(decode(dtype, code));
    });
  } else {
    sums = sums_of_8_bits(bytes, dtype, largest);
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
  if (before && &step == plan.steps.data()) losses_.clear();
  const Node& node = plan.graph.node(step.node);
  if (!before) {
    if (node.op == OpCode::quantize || node.op == OpCode::quantize_both)
      look_at_quantizer(plan, node);
    return;
  }
  if (node.op == OpCode::adamw_step) return look_at_update(plan, node);
  if (node.op != OpCode::gemm) return;
  const GemmRole role = std::get<GemmAttrs>(node.attrs).role;
  if (role == GemmRole::forward) {
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
  const std::string name = fmt::format("{}.{}", linear_of(gemm), what);
  if (!seen_.insert(name).second) return;
  const ValueId id = gemm.in(factor);
  const Dtype dtype = plan.graph.type(id).dtype;
  EdgeStatistics edge = count_edge(dtype, arenas_.read(plan, id));
  // A factor on wide operands is the product's own, not the data's.
  if (is_quantized(dtype) && gemm.in(scale) != kNoValue) {
    edge.scale = static_cast<double>(scalar(plan, gemm.in(scale)));
    edge.rms *= edge.scale, edge.amax *= edge.scale;
  }
  if (const auto loss = losses_.find(id); loss != losses_.end()) {
    edge.source_amax = loss->second.amax;
    if (loss->second.has_noise) edge.snr = loss->second.snr;
  }
  add(std::move(edge), name, gemm.tag);
}

// What the codes lost of their operand, while both are in memory.
void EdgeWatch::look_at_quantizer(const Plan& plan, const Node& quantizer) {
  const auto& attrs = std::get<QuantizeAttrs>(quantizer.attrs);
  if (attrs.group != 0 || attrs.transposed) return;
  const ValueId x = quantizer.in(Quantize::x), q = quantizer.out(Quantize::q);
  const auto wide = values_of(plan.graph.type(x).dtype, arenas_.read(plan, x));
  const auto codes = values_of(attrs.dtype, arenas_.read(plan, q));
  const auto scale = static_cast<double>(scalar(plan, quantizer.in(Quantize::scale)));
  double signal = 0, noise = 0, amax = 0;
  for (size_t i = 0; i < std::min(wide.size(), codes.size()); ++i) {
    const double value = static_cast<double>(wide[i]);
    const double error = static_cast<double>(codes[i]) * scale - value;
    signal += value * value, noise += error * error;
    amax = std::max(amax, std::fabs(value));
  }
  const bool has_noise = signal > 0 && noise > 0;
  losses_[q] = {has_noise ? 10 * std::log10(signal / noise) : 0, amax, has_noise};
}

// The gradient, and the moments as the step before left them; a moment with an expanded range means
// something by its group alone.
void EdgeWatch::look_at_update(const Plan& plan, const Node& adamw) {
  const GraphInput* weight = plan.graph.input_of(adamw.in(AdamwStep::w));
  if (weight == nullptr) return;
  for (const auto& [slot, what] : {std::pair<size_t, const char*>(AdamwStep::g, "grad:"),
                                   {AdamwStep::m, "m:"},
                                   {AdamwStep::v, "v:"}}) {
    const ValueId id = adamw.in(slot);
    const Dtype dtype = plan.graph.type(id).dtype;
    const std::string name = what + weight->name;
    if (is_quantized(dtype) || !seen_.insert(name).second) continue;
    add(count_edge(dtype, arenas_.read(plan, id)), name, adamw.tag);
  }
}

void EdgeWatch::add(EdgeStatistics edge, std::string name, const Tag& tag) {
  edge.edge = std::move(name);
  edge.tag = tag;
  edges_.push_back(std::move(edge));
}

float EdgeWatch::scalar(const Plan& plan, ValueId id) {
  float value = 0;
  std::memcpy(&value, arenas_.read(plan, id).data(), sizeof(value));
  return value;
}

}  // namespace octet
