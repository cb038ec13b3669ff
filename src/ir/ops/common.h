// Checks and short hands that the op families share. Every failed check is an
// Error(invalid_argument) whose message starts with the op's name: "[rms_norm] weight must be
// [4096], got [4095]".
//
// An absent optional operand reaches infer as absent_type(), or not at all where it would be the
// last; a result that is absent leaves it likewise.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op_def.h"

namespace octet::ops {

using Types = std::span<const TensorType>;
using Said = std::span<const ResultType>;  // of the results
using Results = std::vector<TensorType>;
using Values = ValueIds;

template <typename... Args>
[[noreturn]] void fail(std::string_view op, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::invalid_argument, "[{}] {}", op,
              fmt::format(format, std::forward<Args>(args)...));
}

// A float result whose dtype the recipe chooses.
inline TensorType real(Shape shape) {
  return {.dtype = Dtype::real, .shape = std::move(shape)};
}
// Quantized, with one scale.
TensorType per_tensor(Dtype dtype, Shape shape);
// The type of a quantized result, as the node says it; throws where it says none.
ResultType said_of(std::string_view op, Said said, size_t result);
// Types of an op's first codes, which a quantizer in it makes, and of their transpose for `both`.
ResultTypes said_codes(std::string_view op, Said said, bool both, size_t transposed);
// quantize, or quantize_both of two types.
Values emit_quantize(Builder& b, const QuantizeAttrs& attrs, ValueId x, ValueId scale,
                     const ResultTypes& types);
// The types of what that makes, of operands x and scale.
Results quantized_types(const QuantizeAttrs& attrs, Types in, const ResultTypes& types);
// Type of the next history of delayed_scale, whose history is of this type.
TensorType next_history(const TensorType& history);
// The type of a result that only moves what `from` holds: exact for integers and quantized data.
TensorType moved(const TensorType& from, Shape shape);

bool absent(Types types, size_t i);
inline bool absent(const Node& node, size_t i) {
  return node.in(i) == kNoValue;
}

void need_float(std::string_view op, std::string_view what, const TensorType& type);
void need_int(std::string_view op, std::string_view what, const TensorType& type);
void need_bool(std::string_view op, std::string_view what, const TensorType& type);
void need_rank(std::string_view op, std::string_view what, const TensorType& type, size_t rank);
void need_shape(std::string_view op, std::string_view what, const TensorType& type,
                const Shape& expected);
// Two of the above.
void need_float(std::string_view op, std::string_view what, const TensorType& type,
                const Shape& expected);
void need_int(std::string_view op, std::string_view what, const TensorType& type,
              const Shape& expected);
void need_matrix(std::string_view op, std::string_view what, const TensorType& type);
// The axes lie in [0, rank) and none stands twice.
void need_axes(std::string_view op, std::string_view what, const Shape& axes, size_t rank);
// Every dimension is at least 0 and the product fits.
void need_dims(std::string_view op, std::string_view what, const Shape& shape);

inline size_t at(int64_t axis) {
  return static_cast<size_t>(axis);
}
// The shape without these axes.
Shape without(const Shape& shape, const Shape& axes);
// Dimensions of the shape at these axes, in their order.
Shape at_axes(const Shape& shape, const Shape& axes);
// 0, 1, ..., n - 1
Shape iota_axes(size_t n);
// The permutation that undoes this one.
Shape inverse(const Shape& perm);

// Throws where a gradient arrives for any result but the first: no gradient flows through
// statistics.
void only_first_gradient(const VjpCall& call);

// Operands read once and results written once, absent ones free.
double moved_bytes(const Graph& graph, const Node& node);
// `flops_per_element` of the first result, or of the first operand, and moved_bytes.
Cost cost_per_result(const Graph& graph, const Node& node, double flops_per_element);
template <int kFlops>
Cost cost_per_result(const Graph& graph, const Node& node) {
  return cost_per_result(graph, node, kFlops);
}
template <int kFlops>
Cost cost_per_operand(const Graph& graph, const Node& node) {
  return {.flops = kFlops * static_cast<double>(graph.type(node.operands[0]).n_elems()),
          .bytes = moved_bytes(graph, node)};
}
// A float like x.
template <OpCode C>
Results infer_same(const Attrs&, Types in) {
  need_float(op_def(C).name, "x", in[0]);
  return {real(in[0].shape)};
}

// A node of one result in f32, of `real` in the Logical phase: a step within a decomposition.
ValueId emit_wide(Builder& b, OpCode op, ValueId x, ValueId y);
// The gradient of a composed op of one operand and one result: through the steps of its
// decomposition, which are made again.
Values vjp_of_steps(Builder& b, const VjpCall& call);

// Dequantizes the quantized operands to f32 and emits the same op on those; float results are f32.
Values emit_dequantized(Builder& b, const Node& node);
// OpDef::amax_results: the op's own results with the two behind them where the attribute is set;
// throws where it is and the op has none.
Results with_amax_results(OpCode op, const Attrs& attrs, Results results);
// The op without the attribute `amax`, and the op amax of its results, of the types that are said.
Values emit_with_amax(Builder& b, const Node& node, Said said);
inline constexpr InplacePair kInplaceFirst[] = {{.result = 0, .operand = 0}};
inline constexpr InplacePair kInplaceEither[] = {{.result = 0, .operand = 0},
                                                 {.result = 0, .operand = 1}};

}  // namespace octet::ops
