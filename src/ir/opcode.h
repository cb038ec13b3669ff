// Every kind of operation, in the order of the list in ir/ops/list.cpp.
#pragma once

#include <cstdint>

namespace octet {

enum class OpCode : uint8_t {
  // Primitives, element by element: operands have equal shapes.
  neg,
  abs,
  sign,
  exp,
  log,
  sqrt,
  rsqrt,
  square,
  tanh,
  erf,
  logistic,
  sin,
  cos,
  add,
  sub,
  mul,
  div,
  maximum,
  minimum,
  less,
  equal,
  select,
  cast,
  stop_gradient,
  // Scales of values (scale.cpp).
  rescale,
  set_scale,
  rebalance,
  dynamic_rescale,
  cast_in,
  data_scale,
  power_of_two,
  // Primitives that make or move.
  fill,
  iota,
  broadcast,
  reshape,
  transpose,
  slice,
  pad,
  concatenate,
  // Primitives that reduce or look up.
  reduce_sum,
  reduce_max,
  argmax,
  dot,
  gather,
  scatter_add,
  // Linear algebra and biases.
  gemm,
  bias_add,
  column_sum,
  // Layers, each with its gradient.
  embedding,
  embedding_grad,
  rms_norm,
  rms_norm_grad,
  layer_norm,
  layer_norm_grad,
  rope,
  attention,
  attention_grad,
  cache_write,
  gated_act,
  gated_act_grad,
  gelu,
  gelu_grad,
  cross_entropy,
  cross_entropy_grad,
  // Eight bits: scales, quantizers, and ops that quantize as they store.
  amax,
  any_of,
  quant_scale,
  delayed_scale,
  periodic_scale,
  quantize,
  quantize_both,
  quantize_groups,
  dequantize,
  add_quantize,
  fake_quantize,
  amax_quantize,
  rms_norm_quantize,
  layer_norm_quantize,
  gated_act_quantize,
  gelu_quantize,
  gated_act_grad_quantize,
  // The update.
  global_norm,
  adamw_step,
  // Between ranks.
  take_shard,
  all_gather,
  reduce_scatter,
  all_reduce,
  sharded_norm,
};
inline constexpr int kOpCount = static_cast<int>(OpCode::sharded_norm) + 1;

}  // namespace octet
