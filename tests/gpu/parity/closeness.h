// How close a kernel of the GPU comes to the reference, by op and type.
#pragma once

#include <cmath>
#include <set>

#include "ir/graph.h"

namespace octet::fusion {

enum class Closeness : uint8_t { exact, codes, wide };

inline Closeness closeness(OpCode op) {
  static const std::set<OpCode> kExact = {
      OpCode::amax,         OpCode::any_of,        OpCode::quant_scale,     OpCode::delayed_scale,
      OpCode::quantize,     OpCode::quantize_both, OpCode::quantize_groups, OpCode::dequantize,
      OpCode::add_quantize, OpCode::transpose,     OpCode::slice,           OpCode::pad,
      OpCode::concatenate,  OpCode::fill,          OpCode::embedding,       OpCode::add,
      OpCode::cast,         OpCode::amax_quantize, OpCode::fake_quantize,   OpCode::periodic_scale,
      OpCode::iota,         OpCode::gather,        OpCode::reduce_max,      OpCode::argmax,
      OpCode::select};
  static const std::set<OpCode> kCodes = {
      OpCode::rms_norm_quantize, OpCode::layer_norm_quantize,     OpCode::gated_act_quantize,
      OpCode::gelu_quantize,     OpCode::gated_act_grad_quantize, OpCode::adamw_step};
  if (kExact.contains(op)) return Closeness::exact;
  return kCodes.contains(op) ? Closeness::codes : Closeness::wide;
}

// Relative to the largest value of the result: sums of tens of f32 terms, or bf16 factors.
inline double floor_of(const Graph& graph) {
  for (const GraphInput& input : graph.inputs) {
    const Dtype dtype = graph.type(input.value).dtype;
    if (dtype == Dtype::bf16 || dtype == Dtype::fp16) return 4e-3;
  }
  return 2e-5;
}

inline double bound_of(Closeness close, Dtype dtype, double value, double floor) {
  if (is_quantized(dtype)) return 0.26 * std::abs(value) + 0x1p-9;  // one step of the code
  const bool is_short = dtype == Dtype::bf16 || dtype == Dtype::fp16;
  if (close == Closeness::codes && !is_short) return floor;
  return floor + (is_short ? 0x1p-7 * std::abs(value) : 1e-5 * std::abs(value));
}

}  // namespace octet::fusion
