// An op case on the CPU's fast kernel and on the reference, each launched alone: operands, results
// and scratch are exactly as long as they have to be, between guards, and poisoned.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "backends/cpu/backend.h"
#include "backends/cpu/common/isa.h"
#include "base/error.h"
#include "ir/builder.h"
#include "op_cases/op_cases.h"
#include "plan/kernel_row.h"

namespace octet::cpu::parity {

using op_cases::Fill, op_cases::OpCase, op_cases::OperandCase;
using Bytes = std::vector<uint8_t>;
using Doubles = std::vector<double>;

// 64-byte aligned.
class Guarded {
 public:
  explicit Guarded(int64_t n) : n_(static_cast<size_t>(n)), all_(n_ + 3 * kGuard, kGuardByte) {
    begin_ = kGuard + (kGuard - reinterpret_cast<uintptr_t>(all_.data()) % kGuard) % kGuard;
    std::memset(data(), 0xFF, n_);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(all_.data() + begin_); }
  Bytes bytes() const { return {all_.data() + begin_, all_.data() + begin_ + n_}; }
  bool is_intact() const {
    const auto is_guard = [](uint8_t byte) { return byte == kGuardByte; };
    const auto begin = all_.begin() + static_cast<ptrdiff_t>(begin_);
    return std::all_of(all_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<ptrdiff_t>(n_), all_.end(), is_guard);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kGuardByte = 0xA5;
  size_t n_, begin_ = 0;
  Bytes all_;
};

// Types of operands and results that have a choice: f32, bf16 or fp16.
struct Types {
  uint32_t bf16 = 0;  // a bit an operand, then of the first result and of the others
  bool fp16 = false;  // all of them, statistics apart
  Dtype at(int bit) const {
    return fp16 ? Dtype::fp16 : (bf16 >> bit & 1) != 0 ? Dtype::bf16 : Dtype::f32;
  }
};

inline int n_choices(const OpCase& c) {
  const auto n_operands = std::ranges::count_if(c.operands, [](const OperandCase& o) {
    return !o.absent && o.type.dtype == Dtype::real && !o.f32_only;
  });
  const OpDef& def = op_def(c.op);
  const auto n_results = static_cast<int>(def.own_results()) - def.statistics.size();
  return static_cast<int>(n_operands) + std::min(n_results, 2);
}

// Everything of one type, with up to `apart` operands or results of the other; operands of BF16 and
// the last results f32.
inline std::vector<Types> all_types(const OpCase& c, int apart) {
  const int n_bits = n_choices(c);
  std::vector<Types> types;
  for (uint32_t mask = 0; mask < 1u << n_bits; ++mask) {
    const int n = std::popcount(mask);
    if (std::min(n, n_bits - n) <= apart || mask == (1u << n_bits) / 2 - 1)
      types.push_back({.bf16 = mask});
  }
  types.push_back({.fp16 = true});
  return types;
}

// exact_results: f32 in the place of bf16 and fp16. nullopt: the op does not take these types.
inline std::optional<Graph> graph_of(const OpCase& c, Types types, bool exact_results = false) {
  Graph graph;
  graph.name = c.name;
  graph.phase = Phase::typed;
  Builder builder(graph);
  ValueIds operands;
  int bit = 0;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const OperandCase& o = c.operands[i];
    TensorType type = o.type;
    if (type.dtype == Dtype::real) type.dtype = o.f32_only ? Dtype::f32 : Dtype::real;
    if (!o.absent && type.dtype == Dtype::real) type.dtype = types.at(bit++);
    operands.push_back(
        o.absent ? kNoValue : builder.input(InputKind::parameter, op_cases::input_name(i), type));
  }
  const Dtype first = exact_results ? Dtype::f32 : types.at(bit);
  auto said = op_cases::said_types(c.op, first, c.results);
  for (size_t i = 1; i < said.size(); ++i) {
    const bool is_statistic = op_def(c.op).statistics.contains(i);
    if (!exact_results && !is_statistic && said[i].dtype == first)
      said[i] = ResultType(types.at(bit + 1));
  }
  try {
    builder.emit_typed(c.op, c.attrs, operands, said);
  } catch (const Error&) {
    return std::nullopt;
  }
  return graph;
}

// The inputs as the graph's operands are stored.
inline std::vector<Bytes> stored(const Graph& graph, const reference::Tensors& inputs) {
  std::vector<Bytes> operands;
  for (const GraphInput& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    Bytes& bytes = operands.emplace_back(static_cast<size_t>(type.n_bytes()));
    reference::store(type.dtype, inputs.at(input.name), reinterpret_cast<std::byte*>(bytes.data()));
  }
  return operands;
}

struct Launched {
  std::vector<Bytes> results;
  std::string fault;
};

inline Launched launch(const Graph& graph, const std::vector<Bytes>& inputs,
                       const Backend& backend) {
  const Node& node = graph.nodes[0];
  const auto choice = backend.catalogue->choose(graph, node);
  const LaunchFn kernel = backend.catalogue->prepare(graph, node, *choice);
  std::vector<Guarded> from, to;
  for (const Bytes& bytes : inputs) {
    from.emplace_back(std::ssize(bytes));
    std::memcpy(from.back().data(), bytes.data(), bytes.size());
  }
  for (const ValueId id : node.results)
    to.emplace_back(id == kNoValue ? 0 : graph.type(id).n_bytes());
  std::vector<std::byte*> operands, results;
  size_t input = 0;
  for (const ValueId id : node.operands)
    operands.push_back(id == kNoValue ? nullptr : from[input++].data());
  for (size_t i = 0; i < to.size(); ++i)
    results.push_back(node.results[i] == kNoValue ? nullptr : to[i].data());
  Guarded scratch(choice->scratch_bytes);
  kernel({.operands = operands, .results = results, .scratch = scratch.data()});
  Launched done;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!from[i].is_intact() || from[i].bytes() != inputs[i]) done.fault = "writes to operands";
  }
  for (Guarded& result : to) {
    if (!result.is_intact()) done.fault = "writes beyond a result";
    done.results.push_back(result.bytes());
  }
  if (!scratch.is_intact()) done.fault = "writes beyond its scratch";
  return done;
}

// Values that a kernel is tried with, beside those of the case: a NaN; NaN, both Inf, zeros and
// what is tiny; numbers near the largest.
enum class Special : uint8_t { none, nan, nonfinite, largest };

// Bound that an op's kernel promises of a result that is not in codes: |got - want| is at most
// relative * max(floor, max |want|) and a rounding of the result's type.
struct BoundOptions {
  double floor = 0;
  double bf16 = 0;                  // in the place of `relative` where factors are rounded to BF16
  double codes = 0;                 // and where operands are codes, which are large
  Special specials = Special::nan;  // the most that it is tried with
};
struct Bound {
  OpCode op;
  double relative = 0;
  BoundOptions options = {};
};

// For the reference's bits anything goes.
inline std::vector<Special> specials_of(const Bound* bound, bool is_large, bool is_f32) {
  using enum Special;
  if (!is_f32 || (bound != nullptr && is_large)) return {none};
  if (bound == nullptr)
    return is_large ? std::vector{nonfinite, none} : std::vector{none, nonfinite, largest};
  return {none, bound->options.specials};
}

// The case's inputs with a NaN in each operand that is a number of any size, and the first of them
// with other values too. nullopt: there is no such operand.
inline std::optional<reference::Tensors> with_special(Special special, const OpCase& c,
                                                      reference::Tensors inputs) {
  if (special == Special::none) return inputs;
  Doubles* first = nullptr;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const OperandCase& o = c.operands[i];
    const bool is_number = o.fill == Fill::normal || o.fill == Fill::wide;
    if (o.absent || o.f32_only || !is_number || o.type.n_elems() < 16) continue;
    Doubles& x = inputs.at(op_cases::input_name(i));
    if (first == nullptr) first = &x;
    if (special != Special::largest) x[x.size() / (3 + i)] = NAN;
  }
  if (first == nullptr) return std::nullopt;
  Doubles& x = *first;
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) {
    if (special == Special::largest) {
      const double below = 1 - 5e-6 * static_cast<double>(i % 400);
      x[i] = static_cast<float>((i % 3 == 0 ? -1 : 1) * 3.4028234663852886e38 * below);
    } else if (special == Special::nonfinite) {
      if (i % 11 == 3) x[i] = std::ldexp(x[i], static_cast<int>(i % 90) - 60);
      if (i >= n / 2 && i < n / 2 + 40) x[i] = 0;
    }
  }
  if (special == Special::nonfinite)
    x[n / 5] = INFINITY, x[n - 1] = -INFINITY, x[n / 7] = 1000, x[n / 6] = -1000;
  return inputs;
}

inline Doubles values_of(const TensorType& type, const Bytes& bytes) {
  Doubles values(static_cast<size_t>(type.n_stored()));
  reference::load(type.dtype, reinterpret_cast<const std::byte*>(bytes.data()), values);
  return values;
}

inline bool is_same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// "" or the first value that is too far. bound: nullptr for the reference's bits.
inline std::string difference(const TensorType& type, const Doubles& got, const Doubles& want,
                              const Bound* bound, bool of_codes) {
  const Dtype dtype = type.dtype;
  double relative = 0, largest = 0;
  if (bound != nullptr) {
    const BoundOptions& o = bound->options;
    const bool in_bf16 = dtype == Dtype::bf16 && bf16_compute_dtype() == Dtype::bf16;
    relative = in_bf16 && o.bf16 > 0 ? o.bf16 : of_codes && o.codes > 0 ? o.codes : bound->relative;
    largest = o.floor;
  }
  for (const double w : want) largest = std::isfinite(w) ? std::max(largest, std::abs(w)) : largest;
  const double ulp = dtype == Dtype::bf16 ? 0x1p-8 : dtype == Dtype::fp16 ? 0x1p-11 : 0x1p-23;
  const double least = dtype == Dtype::fp16 ? 0x1p-24 : 1e-37;
  int64_t n_other = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (is_same(got[i], want[i])) continue;
    if (bound != nullptr && is_same(got[i], reference::round_to(dtype, want[i]))) continue;  // Inf
    double allowed = relative * largest + ulp * std::abs(want[i]) + least;
    if (is_quantized(dtype)) allowed = 0.26 * std::abs(want[i]) + 0x1p-9;  // the next code,
    const bool is_rare =
        !is_quantized(dtype) || ++n_other <= 1 + std::ssize(want) / 1000;  // rarely
    if (bound == nullptr || !is_rare || !(std::abs(got[i] - want[i]) <= allowed))
      return fmt::format("[{}] {} is {}, expected {}", i, dtype_name(dtype), got[i], want[i]);
  }
  return {};
}

}  // namespace octet::cpu::parity
