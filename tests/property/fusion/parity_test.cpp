// The fast kernels of quantizers, of ops on stored operands and of moves against the reference
// kernels, over the op cases.
#include "run.h"

namespace octet::fusion {
namespace {

using op_cases::OpCase;

enum class Closeness : uint8_t { exact, codes, wide };

// Quantizers and moves are exact; codes of a computed value may fall on the other side of a
// rounding; the rest is f32 against double.
std::optional<Closeness> closeness(OpCode op) {
  switch (op) {
    case OpCode::amax:
    case OpCode::quant_scale:
    case OpCode::delayed_scale:
    case OpCode::periodic_scale:
    case OpCode::quantize:
    case OpCode::quantize_both:
    case OpCode::quantize_groups:
    case OpCode::dequantize:
    case OpCode::add_quantize:
    case OpCode::amax_quantize:
    case OpCode::broadcast:
    case OpCode::transpose:
    case OpCode::slice:
    case OpCode::pad:
    case OpCode::concatenate:
      return Closeness::exact;
    case OpCode::rms_norm_quantize:
    case OpCode::layer_norm_quantize:
    case OpCode::gated_act_quantize:
    case OpCode::gelu_quantize:
      return Closeness::codes;
    case OpCode::rms_norm:
    case OpCode::rms_norm_grad:
    case OpCode::layer_norm:
    case OpCode::layer_norm_grad:
    case OpCode::gated_act:
    case OpCode::gated_act_grad:
    case OpCode::gelu:
    case OpCode::gelu_grad:
    case OpCode::cross_entropy:
    case OpCode::cross_entropy_grad:
      return Closeness::wide;
    default:
      return std::nullopt;
  }
}

constexpr double kF32Reduction = 2e-6;  // relative to the largest value: f32 sums of tens of terms
constexpr double kBf16Step = 0x1p-7;    // of the value itself, at most: a rounding may fall the
                                        // other way
constexpr double kCodeStep = 0.15;      // of the value: one step of E4M3 and less

double bound_of(Closeness close, Dtype dtype, double value, double largest) {
  const double floor = kF32Reduction * (1 + largest);
  if (is_quantized(dtype)) return kCodeStep * std::abs(value) + 0x1p-9;
  if (close == Closeness::codes) return floor;
  return floor + (dtype == Dtype::bf16 ? kBf16Step * std::abs(value) : 0);
}

void expect_close(const Graph& graph, const Tensors& actual, const Tensors& expected,
                  Closeness close) {
  for (const GraphOutput& output : graph.outputs) {
    const auto& got = actual.at(output.name);
    const auto& want = expected.at(output.name);
    double largest = 0;
    for (const double w : want) largest = std::isnan(w) ? largest : std::max(largest, std::abs(w));
    const Dtype dtype = graph.type(output.value).dtype;
    int64_t different = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      different += same_value(got[i], want[i]) ? 0 : 1;
      if (same_value(got[i], want[i])) continue;  // NaN too
      EXPECT_NEAR(got[i], want[i], bound_of(close, dtype, want[i], largest))
          << graph.name << " " << output.name << "[" << i << "]";
    }
    if (is_quantized(dtype)) {
      EXPECT_LE(different, 1 + std::ssize(want) / 1000) << graph.name;
    }
  }
}

TEST(parity, fast_kernels_equal_reference_kernels) {
  int n_cases = 0;
  for (const OpCase& c : op_cases::op_cases()) {
    const auto close = closeness(c.op);
    if (!close || c.as_others) continue;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const Graph graph = case_graph(c, dtype);
      const Tensors inputs = case_inputs(c, 11);
      const Tensors fast = run_plan(graph, inputs, fast_backend());
      const Tensors slow = run_plan(graph, inputs, scalar_backend());
      if (*close == Closeness::exact) {
        expect_same(fast, slow, c.name);
      } else {
        expect_close(graph, fast, slow, *close);
      }
      ++n_cases;
    }
  }
  EXPECT_GT(n_cases, 100);
}

}  // namespace
}  // namespace octet::fusion
