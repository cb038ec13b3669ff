// Every kernel that the module offers, by family. What its parameters, operands and results are
// stands in params/<family>.h.
#pragma once

#include <cstdint>

namespace octet::cuda {

// Words of device memory that a prepared kernel has for the counts of its blocks
// (launch/context.h).
inline constexpr int kCounters = 256;

enum class KernelId : int32_t {
  // gemm
  gemm,
  // rows: norms, activations, rotary embedding, biases
  layer,  // a norm or an activation (RowLayer), alone or with its quantizer
  norm_grad,
  activation_grad,
  gated_act_grad_quantize,
  rope,
  bias_add,
  column_sum,
  batch_norm,
  batch_norm_grad,
  // quantize
  amax,
  any_of,
  quant_scale,
  delayed_scale,
  periodic_scale,
  quantize,
  quantize_both,
  amax_quantize,
  quantize_groups,
  quantize_blocks,
  fake_quantize,
  dequantize,
  add_quantize,
  // move: element by element, and what moves
  elementwise,
  axpby,
  cast,
  fill,
  iota,
  transpose,
  broadcast,
  slice,
  pad,
  concatenate,
  cache_write,
  unfold,
  fold,
  depthwise,
  depthwise_weight,
  // loss: embedding and cross-entropy
  embedding,
  embedding_grad,
  cross_entropy,
  cross_entropy_grad,
  // reduce: primitives that reduce or contract
  reduce_sum,
  reduce_max,
  argmax,
  dot,
  // update
  global_norm,
  adamw_step,
  store_scaled,
  load_state,
  store_state,
  // ranks: between the GPUs of one host
  take_shard,
  all_gather,
  reduce_ranks,
  max_of_ranks,
  sharded_norm,
  // attention
  attention_library,
  attention_library_grad,
  attention_tensor,
  attention_tensor_grad,
  attention_plain,
  attention_plain_grad,
  attention_cached,
  gated_delta,
  gated_delta_grad,
  gated_delta_step,  // one token of each text
  // draw: first values of weights
  init_weights,
};
inline constexpr int kKernelCount = static_cast<int>(KernelId::init_weights) + 1;

}  // namespace octet::cuda
