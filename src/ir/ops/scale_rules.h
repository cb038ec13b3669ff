// The scale rule of each op, by family: scale_rules_primitives.cpp, scale_rules_layers.cpp; those
// of norms and activations stand beside their ops. Each expects of its operands independent,
// centred normals; where another law is meant, it says so.
#pragma once

#include "ir/scale.h"

namespace octet::ops::scale {

using Scales = std::vector<Scaled>;

using Rule = Scales(Scaler& s, const ScaleCall& call);

// The op on x's data has x's scale: a rearrangement, a sign, a linear map that keeps the RMS.
Rule same;
// On values themselves; the result's RMS is near 1, or it is an integer or a boolean.
Rule of_values;
Rule largest;  // of maximum, minimum, concatenate
Rule rescale, cast_in, add, mul, div, compare, select, square, root, inverse_root, fill, pad,
    reduce_sum, dot, scatter_add, set_scale, rebalance, dynamic_rescale, delayed_rescale,
    custom_scale, data_scale, stop_scaling, integer_pow, reduce_prod, reduce_window, fold;
Rule gemm, batched_gemm, depthwise, bias_add, column_sum, rms_norm, rms_norm_grad, layer_norm,
    layer_norm_grad, attention, attention_grad, gated_act, gated_act_grad, gelu, gelu_grad,
    cross_entropy, cross_entropy_grad;
Rule global_norm, update;
// Rule of a composed op by those of its steps, constants among them, in their order.
Rule of_steps;
// The result as the readers want it.
Scaled finished(Scaler& s, const ScaleCall& call, const Scaled& y);
bool has(const ScaleCall& call, size_t slot);
// Rows of operand 0, at least 1.
double rows_of(const ScaleCall& call);
// Scale of the sum of x and a bias: x's own, but where the bias is so much larger that FP16 might
// not hold it there; and its prediction.
Scale with_bias(Scaler& s, const Scaled& x, const Scaled& bias);
double with_bias_predicted(const Scaled& x, const Scaled& bias);
// The call's op on data.
ValueId emit(Scaler& s, const ScaleCall& call, ValueIds data);
// The power of two that is next to a norm of x, a mean but for max; 1 where there is none.
ValueId norm_power(Builder& b, ValueId x, RescaleNorm norm);
// x by its norm of the data, rounded to a power of two: the same value with another factor.
Scaled rescaled_by_norm(Scaler& s, const Scaled& x, RescaleNorm norm);

}  // namespace octet::ops::scale
