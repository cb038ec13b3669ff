#include "backends/cpu/reference/kernels.h"

#include "base/error.h"

namespace octet::reference {
namespace {

template <OpCode C>
void unary_of(const RefCall& call) {
  unary(C, call);
}
template <OpCode C>
void binary_of(const RefCall& call) {
  binary(C, call);
}
template <OpCode C>
void compare_of(const RefCall& call) {
  compare(C, call);
}

Kernel arithmetic(OpCode op) {
  switch (op) {
    case OpCode::neg:
      return unary_of<OpCode::neg>;
    case OpCode::abs:
      return unary_of<OpCode::abs>;
    case OpCode::sign:
      return unary_of<OpCode::sign>;
    case OpCode::exp:
      return unary_of<OpCode::exp>;
    case OpCode::log:
      return unary_of<OpCode::log>;
    case OpCode::sqrt:
      return unary_of<OpCode::sqrt>;
    case OpCode::rsqrt:
      return unary_of<OpCode::rsqrt>;
    case OpCode::square:
      return unary_of<OpCode::square>;
    case OpCode::tanh:
      return unary_of<OpCode::tanh>;
    case OpCode::erf:
      return unary_of<OpCode::erf>;
    case OpCode::logistic:
      return unary_of<OpCode::logistic>;
    case OpCode::sin:
      return unary_of<OpCode::sin>;
    case OpCode::cos:
      return unary_of<OpCode::cos>;
    case OpCode::add:
      return binary_of<OpCode::add>;
    case OpCode::sub:
      return binary_of<OpCode::sub>;
    case OpCode::mul:
      return binary_of<OpCode::mul>;
    case OpCode::div:
      return binary_of<OpCode::div>;
    case OpCode::maximum:
      return binary_of<OpCode::maximum>;
    case OpCode::minimum:
      return binary_of<OpCode::minimum>;
    case OpCode::less:
      return compare_of<OpCode::less>;
    case OpCode::equal:
      return compare_of<OpCode::equal>;
    default:
      return nullptr;
  }
}

Kernel movement(OpCode op) {
  switch (op) {
    case OpCode::select:
      return select;
    case OpCode::cast:
      return copy;
    case OpCode::stop_gradient:
    case OpCode::set_scale:
    case OpCode::rebalance:
    case OpCode::dynamic_rescale:
    case OpCode::custom_scale:
      return copy;
    case OpCode::delayed_rescale:
      return delayed_rescale;
    case OpCode::store_scaled:
      return store_scaled;
    case OpCode::rescale:
      return rescale;
    case OpCode::cast_in:
      return cast_in;
    case OpCode::data_scale:
      return data_scale;
    case OpCode::power_of_two:
      return power_of_two;
    case OpCode::fill:
      return fill;
    case OpCode::iota:
      return iota;
    case OpCode::broadcast:
      return broadcast;
    case OpCode::reshape:
      return copy;
    case OpCode::transpose:
      return transpose;
    case OpCode::slice:
      return slice;
    case OpCode::pad:
      return pad;
    case OpCode::concatenate:
      return concatenate;
    case OpCode::reduce_sum:
      return reduce_sum;
    case OpCode::reduce_max:
      return reduce_max;
    case OpCode::argmax:
      return argmax;
    default:
      return nullptr;
  }
}

Kernel coarse(OpCode op) {
  switch (op) {
    case OpCode::dot:
      return dot;
    case OpCode::gather:
      return gather;
    case OpCode::scatter_add:
      return scatter_add;
    case OpCode::gemm:
      return gemm;
    case OpCode::bias_add:
      return bias_add;
    case OpCode::column_sum:
      return column_sum;
    case OpCode::embedding:
      return gather;
    case OpCode::embedding_grad:
      return scatter_add;
    case OpCode::rms_norm:
      return rms_norm_stored;
    case OpCode::rms_norm_grad:
      return rms_norm_grad_stored;
    case OpCode::layer_norm:
      return layer_norm_stored;
    case OpCode::layer_norm_grad:
      return layer_norm_grad_stored;
    case OpCode::rope:
      return rope;
    case OpCode::attention:
      return attention;
    case OpCode::attention_grad:
      return attention_grad;
    case OpCode::cache_write:
      return cache_write;
    case OpCode::gated_act:
      return gated_act_stored;
    case OpCode::gated_act_grad:
      return gated_act_grad_stored;
    case OpCode::gelu:
      return gelu_stored;
    case OpCode::gelu_grad:
      return gelu_grad_stored;
    case OpCode::cross_entropy:
      return cross_entropy;
    case OpCode::cross_entropy_grad:
      return cross_entropy_grad;
    default:
      return nullptr;
  }
}

Kernel eight_bit(OpCode op) {
  switch (op) {
    case OpCode::amax:
      return amax;
    case OpCode::any_of:
      return any_of;
    case OpCode::quant_scale:
      return quant_scale;
    case OpCode::delayed_scale:
      return delayed_scale;
    case OpCode::periodic_scale:
      return periodic_scale;
    case OpCode::quantize:
      return quantize;
    case OpCode::quantize_both:
      return quantize_both;
    case OpCode::quantize_groups:
      return quantize_groups;
    case OpCode::dequantize:
      return dequantize;
    case OpCode::add_quantize:
      return add_quantize;
    case OpCode::fake_quantize:
      return fake_quantize;
    case OpCode::amax_quantize:
      return amax_quantize;
    case OpCode::rms_norm_quantize:
      return rms_norm_quantize;
    case OpCode::layer_norm_quantize:
      return layer_norm_quantize;
    case OpCode::gated_act_quantize:
      return gated_act_quantize;
    case OpCode::gelu_quantize:
      return gelu_quantize;
    case OpCode::gated_act_grad_quantize:
      return gated_act_grad_quantize;
    default:
      return nullptr;
  }
}

Kernel between_ranks(OpCode op) {
  switch (op) {
    case OpCode::take_shard:
      return take_shard;
    case OpCode::put_shard:
      return put_shard;
    case OpCode::all_gather:
      return all_gather;
    case OpCode::reduce_scatter:
      return reduce_scatter;
    case OpCode::all_reduce:
      return all_reduce;
    case OpCode::sharded_norm:
      return sharded_norm;
    default:
      return nullptr;
  }
}

Kernel update(OpCode op) {
  switch (op) {
    case OpCode::global_norm:
      return global_norm;
    case OpCode::adamw_step:
      return adamw_step;
    default:
      return nullptr;
  }
}

}  // namespace

Kernel kernel(OpCode op) {
  for (const auto family : {arithmetic, movement, coarse, eight_bit, update, between_ranks}) {
    if (const Kernel found = family(op)) return found;
  }
  CHECK(false);
  return nullptr;
}

}  // namespace octet::reference
