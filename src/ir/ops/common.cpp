#include "ir/ops/common.h"

#include <algorithm>
#include <numeric>

#include "base/integer.h"
#include "ir/ops/gradients_of_steps.h"

namespace octet::ops {

TensorType moved(const TensorType& from, Shape shape) {
  const bool chosen = is_float(from.dtype) && !is_quantized(from.dtype);
  return {.dtype = chosen ? Dtype::real : from.dtype,
          .shape = std::move(shape),
          .granularity = from.granularity};
}

TensorType per_tensor(Dtype dtype, Shape shape) {
  return {.dtype = dtype,
          .shape = std::move(shape),
          .granularity = {.kind = Granularity::Kind::tensor}};
}

bool absent(Types types, size_t i) {
  return i >= types.size() || types[i] == absent_type();
}

void need_float(std::string_view op, std::string_view what, const TensorType& type) {
  if (!is_float(type.dtype)) fail(op, "{} must be a float, got {}", what, to_string(type));
}

void need_int(std::string_view op, std::string_view what, const TensorType& type) {
  if (type.dtype != Dtype::i32) fail(op, "{} must be i32, got {}", what, to_string(type));
}

void need_bool(std::string_view op, std::string_view what, const TensorType& type) {
  if (type.dtype != Dtype::boolean) fail(op, "{} must be bool, got {}", what, to_string(type));
}

void need_rank(std::string_view op, std::string_view what, const TensorType& type, size_t rank) {
  if (type.shape.size() != rank) {
    fail(op, "{} must have {} axes, got {}", what, rank, to_string(type.shape));
  }
}

void need_shape(std::string_view op, std::string_view what, const TensorType& type,
                const Shape& expected) {
  if (type.shape != expected) {
    fail(op, "{} must be {}, got {}", what, to_string(expected), to_string(type.shape));
  }
}

void need_float(std::string_view op, std::string_view what, const TensorType& type,
                const Shape& expected) {
  need_float(op, what, type);
  need_shape(op, what, type, expected);
}

void need_int(std::string_view op, std::string_view what, const TensorType& type,
              const Shape& expected) {
  need_int(op, what, type);
  need_shape(op, what, type, expected);
}

void need_matrix(std::string_view op, std::string_view what, const TensorType& type) {
  need_float(op, what, type);
  need_rank(op, what, type, 2);
}

void need_axes(std::string_view op, std::string_view what, const Shape& axes, size_t rank) {
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool twice = std::count(axes.begin(), axes.end(), axes[i]) > 1;
    if (axes[i] < 0 || at(axes[i]) >= rank || twice) {
      fail(op, "{} must be different axes below {}, got {}", what, rank, to_string(axes));
    }
  }
}

void need_dims(std::string_view op, std::string_view what, const Shape& shape) {
  int64_t n = 1;
  for (const int64_t dim : shape) {
    if (dim < 0) fail(op, "{} must have no negative dimension, got {}", what, to_string(shape));
    if (__builtin_mul_overflow(n, dim, &n)) fail(op, "{} is too large: {}", what, to_string(shape));
  }
}

Shape without(const Shape& shape, const Shape& axes) {
  Shape rest;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) {
      rest.push_back(shape[i]);
    }
  }
  return rest;
}

Shape at_axes(const Shape& shape, const Shape& axes) {
  Shape dims;
  for (const int64_t axis : axes) dims.push_back(shape[at(axis)]);
  return dims;
}

Shape iota_axes(size_t n) {
  Shape axes(n);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

Shape inverse(const Shape& perm) {
  Shape result(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result[at(perm[i])] = static_cast<int64_t>(i);
  return result;
}

void only_first_gradient(const VjpCall& call) {
  for (size_t i = 1; i < call.dresults.size(); ++i) {
    if (call.dresults[i] != kNoValue) {
      fail(op_def(call.node.op).name, "no gradient flows through result {}, a statistic", i);
    }
  }
}

double moved_bytes(const Graph& graph, const Node& node) {
  double bytes = 0;
  for (const ValueId id : node.operands) {
    if (id != kNoValue) bytes += static_cast<double>(graph.type(id).n_bytes());
  }
  for (const ValueId id : node.results) {
    if (id != kNoValue) bytes += static_cast<double>(graph.type(id).n_bytes());
  }
  return bytes;
}

Cost cost_per_result(const Graph& graph, const Node& node, double flops_per_element) {
  const auto n = static_cast<double>(graph.type(node.results[0]).n_elems());
  return {.flops = flops_per_element * n, .bytes = moved_bytes(graph, node)};
}

ResultType said_of(std::string_view op, Said said, size_t result) {
  if (result >= said.size() || !is_quantized(said[result].dtype))
    fail(op, "expected a result of eight bits, e4m3:tensor for instance");
  return said[result];
}

ResultTypes said_codes(std::string_view op, Said said, bool both, size_t transposed) {
  ResultTypes types{said_of(op, said, 0)};
  if (both) types.push_back(said_of(op, said, transposed));
  return types;
}

Values emit_quantize(Builder& b, const QuantizeAttrs& attrs, ValueId x, ValueId scale,
                     const ResultTypes& types) {
  const bool both = types.size() > 1;
  return b.emit_typed(both ? OpCode::quantize_both : OpCode::quantize, attrs, {x, scale}, types);
}

Results quantized_types(const QuantizeAttrs& attrs, Types in, const ResultTypes& types) {
  return op_def(types.size() > 1 ? OpCode::quantize_both : OpCode::quantize)
      .infer(attrs, in, types);
}

Values emit_dequantized(Builder& b, const Node& node) {
  Values operands = node.operands;
  size_t n_own = operands.size();
  for (const ScalePlace place : op_def(node.op).scales) {
    ValueId& x = operands[place.operand];
    n_own = std::min<size_t>(n_own, place.scale);
    if (!b.type(x).is_scaled()) continue;
    x = b.dequantize(x, operands[place.scale], Dtype::f32);
  }
  operands.resize(n_own);
  const ResultTypes wide(node.results.size(), Dtype::f32);
  return b.emit_typed(node.op, node.attrs, operands, wide);
}

Results with_amax_results(OpCode op, const Attrs& attrs, Results results) {
  if (!emits_amax(attrs)) return results;
  const OpDef& def = op_def(op);
  if (def.amax_results == 0) fail(def.name, "it gives no amax of its results");
  results.resize(def.own_results(), absent_type());
  results.push_back({Dtype::f32, {}});
  results.push_back({Dtype::boolean, {}});
  return results;
}

Values emit_with_amax(Builder& b, const Node& node, Said said) {
  const OpDef& def = op_def(node.op);
  Values results = b.emit_typed(node.op, with_amax(node.attrs, false), node.operands,
                                {said.begin(), said.end()});
  const Values measured(results.begin(), results.begin() + def.amax_results);
  const Values amax = b.emit(OpCode::amax, NoAttrs{}, measured);
  results.resize(def.own_results(), kNoValue);
  results.insert(results.end(), amax.begin(), amax.end());
  return results;
}

ValueId emit_wide(Builder& b, OpCode op, ValueId x, ValueId y) {
  const Dtype wide = b.graph().phase == Phase::logical ? Dtype::real : Dtype::f32;
  return b.emit_typed(op, NoAttrs{}, {x, y}, {wide})[0];
}

Values gradients_of_steps(Builder& b, size_t first, std::map<ValueId, ValueId> arriving,
                          const Values& of) {
  const Graph& graph = b.graph();
  for (size_t n = graph.nodes.size(); n-- > first;) {
    const Node step = graph.nodes[n];  // a copy: its gradient appends
    const auto dy = arriving.find(step.results[0]);
    const OpDef& def = op_def(step.op);
    if (dy == arriving.end() || def.vjp == nullptr) continue;
    const ValueId dresults[] = {dy->second};
    const Values doperands = def.vjp(b, {.node = step, .dresults = dresults});
    for (size_t i = 0; i < doperands.size(); ++i) {
      if (doperands[i] == kNoValue) continue;
      const auto [total, is_first] = arriving.try_emplace(step.operands[i], doperands[i]);
      if (!is_first) total->second = b.add(total->second, doperands[i]);
    }
  }
  Values gradients;
  for (const ValueId id : of) {
    const auto found = arriving.find(id);
    gradients.push_back(found == arriving.end() ? kNoValue : found->second);
  }
  return gradients;
}

Values vjp_of_steps(Builder& b, const VjpCall& call) {
  const size_t first = b.graph().nodes.size();
  const ValueId y = op_def(call.node.op).decompose(b, call.node)[0];
  return gradients_of_steps(b, first, {{y, call.dresults[0]}}, {call.node.operands[0]});
}

}  // namespace octet::ops
