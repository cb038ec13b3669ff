// Scales of rows and of columns, in scale rules.
#pragma once

#include <optional>

#include "ir/scale.h"

namespace octet::ops::scale {

// Factors of a matrix [R, C] may be of rows, [R, 1], or of columns, [1, C]: the Granularity that
// such scales have (row, or Gx1 with G = R); none where they are of neither.
std::optional<Granularity> axis_granularity(const Shape& scales, const Shape& x);
// Which operands' factors of rows or columns an op's rule takes: with_axis_scales leaves those.
enum class AxisScales : uint8_t {
  one,       // none: such operands come to one scale
  values,    // the rule takes out every factor, as the op needs the value
  elements,  // of one kind, that of the first such operand
  moved,     // any, moved as the elements are
  table,     // a table's, whose rows are looked up; its columns' as they are
  gemm,      // those of the result's rows and columns: of op(a)'s rows and of op(b)'s columns
};
AxisScales axis_scales(OpCode op);
std::vector<Scaled> with_axis_scales(Scaler& s, const Graph& graph, const Node& node,
                                     std::vector<Scaled> operands);
// x at the largest of its rows' or columns' scales.
Scaled at_one_scale(Scaler& s, const Scaled& x);
// The factor of x's rows or columns where the call's op has moved them.
ValueId moved_factor(Scaler& s, const ScaleCall& call, ValueId factor);
// Of a GEMM: out of x, that of op(x)'s rows or columns, or none; into y, columns at one beside
// rows.
ValueId take_axis_factor(Scaler& s, Scaled& x, bool trans);
Scaled with_axis_factors(Scaler& s, Scaled y, ValueId rows, ValueId columns);

}  // namespace octet::ops::scale
