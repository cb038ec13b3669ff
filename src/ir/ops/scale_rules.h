// The scale rule of each op, by family: scale_rules_primitives.cpp, scale_rules_layers.cpp. What
// each expects of its operands: independent, centred normals; where another law is meant, it says
// so.
#pragma once

#include <optional>

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
Rule gemm, batched_gemm, bias_add, column_sum, rms_norm, rms_norm_grad, layer_norm, layer_norm_grad,
    attention, attention_grad, gated_act, gated_act_grad, gelu, gelu_grad, cross_entropy,
    cross_entropy_grad;
Rule global_norm, update;
// Of a composed op by the rules of its steps, constants among them, in their order.
Rule of_steps;
// Factors of a matrix [R, C] may be of rows, [R, 1], or of columns, [1, C]: these shapes of scales
// by the Granularity (row, or Gx1 with G = R); none where they are of neither.
std::optional<Granularity> axis_granularity(const Shape& scales, const Shape& x);
// Which operands' factors of rows or columns an op's rule takes.
enum class AxisScales : uint8_t {
  one,       // none: such operands come to one scale
  values,    // the rule takes out every factor, as the op needs the value
  elements,  // of one kind, that of the first such operand
  rows,      // of rows
  moved,     // any, moved as the elements are
  table,     // a table's, whose rows are looked up; its columns' as they are
  gemm,      // those of the result's rows and columns: of op(a)'s rows and of op(b)'s columns
};
AxisScales axis_scales(OpCode op);
// A node's operands as its rule takes them.
std::vector<Scaled> with_axis_scales(Scaler& s, const Graph& graph, const Node& node,
                                     std::vector<Scaled> operands);
// x at the largest of its rows' or columns' scales.
Scaled at_one_scale(Scaler& s, const Scaled& x);
// The factor of x's rows or columns where the call's op has moved them.
ValueId moved_factor(Scaler& s, const ScaleCall& call, ValueId factor);
// Takes the factor of rows or columns out of a GEMM's operand: that of op(x), or none.
ValueId take_axis_factor(Scaler& s, Scaled& x, bool trans);
// y times scales of its rows and columns. Both: the columns come to one scale.
Scaled with_axis_factors(Scaler& s, Scaled y, ValueId rows, ValueId columns);
// The call's op on data.
ValueId emit(Scaler& s, const ScaleCall& call, ValueIds data);
// The power of two that is next to a norm of x, a mean but for max; 1 where there is none.
ValueId norm_power(Builder& b, ValueId x, RescaleNorm norm);
// x by its norm of the data, rounded to a power of two: the same value with another factor.
Scaled rescaled_by_norm(Scaler& s, const Scaled& x, RescaleNorm norm);

}  // namespace octet::ops::scale
