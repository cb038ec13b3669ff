#include "ir/builder.h"

#include "base/error.h"

namespace octet {
namespace {

// n_elems throws for shapes that are too large; here it is known of what.
void check_size(std::string_view name, const Tag& tag, const Shape& shape) try {
  n_elems(shape);
} catch (const Error& error) {
  const std::string layer = tag.layer < 0 ? "" : " of " + layer_text(tag);
  throw Error(error.code(), "{} in {}{}{}", error.what(), name,
              tag.origin.empty() ? "" : " of " + tag.origin, layer);
}

}  // namespace

ValueId Builder::input(InputKind kind, std::string name, TensorType type) {
  check_size(name, {}, type.shape);
  const auto id = static_cast<ValueId>(graph_.values.size());
  graph_.inputs.push_back(graph_input(id, kind, std::move(name), type.dtype));
  graph_.values.push_back({.type = std::move(type)});
  return id;
}

ValueId Builder::state(StateUse use, std::string_view owner, TensorType type) {
  return input(state_def(use).kind, state_name(use, owner), std::move(type));
}

void Builder::output(std::string name, ValueId value, ValueId updates) {
  graph_.outputs.push_back({.name = std::move(name), .value = value, .updates = updates});
}

void Builder::next(ValueId input, ValueId value) {
  const GraphInput* of = graph_.input_of(input);
  CHECK(of != nullptr);
  output(next_name(of->name), value, input);
}

ValueIds Builder::emit(OpCode op, Attrs attrs, ValueIds operands) {
  return emit_typed(op, std::move(attrs), std::move(operands), {});
}

ValueIds Builder::emit_typed(OpCode op, Attrs attrs, ValueIds operands, const ResultTypes& types) {
  const OpDef& def = op_def(op);
  check_operands(def, attrs, operands);
  std::vector<TensorType> read;
  std::optional<Dtype> chosen = default_dtype;
  for (const ValueId operand : operands) {
    read.push_back(operand == kNoValue ? absent_type() : graph_.type(operand));
    if (operand != kNoValue && !chosen && is_float(read.back().dtype) &&
        !is_quantized(read.back().dtype))
      chosen = read.back().dtype;
  }
  check_scales(def, read);
  std::vector<TensorType> results = def.infer(attrs, read, types);
  const auto node_id = static_cast<NodeId>(graph_.nodes.size());
  Node node{.op = op,
            .attrs = std::move(attrs),
            .operands = trimmed(std::move(operands)),
            .results = {},
            .tag = tag};
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == absent_type()) {
      node.results.push_back(kNoValue);
      continue;
    }
    check_size(def.name, tag, results[i].shape);
    if (results[i].dtype == Dtype::real && graph_.phase != Phase::logical) {
      const bool statistic = def.statistics.contains(i);
      results[i].dtype = i < types.size() ? types[i].dtype
                         : statistic      ? Dtype::f32
                                          : chosen.value_or(Dtype::f32);
    }
    node.results.push_back(static_cast<ValueId>(graph_.values.size()));
    graph_.values.push_back(
        {.type = results[i], .producer = node_id, .result_index = static_cast<int>(i)});
  }
  node.results = trimmed(std::move(node.results));
  ValueIds ids = node.results;
  graph_.nodes.push_back(std::move(node));
  return ids;
}

ValueId Builder::emit1(OpCode op, Attrs attrs, ValueIds operands) {
  const auto results = emit(op, std::move(attrs), std::move(operands));
  CHECK(results.size() == 1);
  return results[0];
}

ValueId Builder::select(ValueId condition, ValueId yes, ValueId no) {
  return emit1(OpCode::select, NoAttrs{}, {condition, yes, no});
}

ValueId Builder::fill(const Shape& shape, double value) {
  return emit1(OpCode::fill, FillAttrs{.shape = shape, .value = value}, {});
}

ValueId Builder::iota(const Shape& shape, int64_t axis) {
  return emit1(OpCode::iota, IotaAttrs{.shape = shape, .axis = axis}, {});
}

ValueId Builder::broadcast(ValueId x, const Shape& shape, const Shape& axes) {
  return emit1(OpCode::broadcast, BroadcastAttrs{.shape = shape, .axes = axes}, {x});
}

ValueId Builder::broadcast_along(ValueId x, const Shape& shape, int64_t axis) {
  Shape axes;
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
    if (i != axis) axes.push_back(i);
  }
  return broadcast(x, shape, axes);
}

ValueId Builder::reduce_sum(ValueId x, const Shape& axes) {
  return emit1(OpCode::reduce_sum, AxesAttrs{.axes = axes}, {x});
}

ValueId Builder::reduce_max(ValueId x, const Shape& axes) {
  return emit1(OpCode::reduce_max, AxesAttrs{.axes = axes}, {x});
}

ValueId Builder::reshape(ValueId x, const Shape& shape) {
  return emit1(OpCode::reshape, ReshapeAttrs{.shape = shape}, {x});
}

ValueId Builder::concatenate(const ValueIds& parts, int64_t axis) {
  return emit1(OpCode::concatenate, AxisAttrs{.axis = axis}, parts);
}

ValueId Builder::slice(ValueId x, int64_t axis, int64_t first, int64_t n) {
  SliceAttrs attrs{
      .start = Shape(shape(x).size(), 0), .limit = shape(x), .stride = Shape(shape(x).size(), 1)};
  const auto at = static_cast<size_t>(axis);
  attrs.start[at] = first, attrs.limit[at] = first + n;
  return emit1(OpCode::slice, attrs, {x});
}

ValueId Builder::transpose(ValueId x, const Shape& perm) {
  return emit1(OpCode::transpose, TransposeAttrs{.perm = perm}, {x});
}

ValueId Builder::cast(ValueId x, Dtype dtype) {
  return emit_typed(OpCode::cast, NoAttrs{}, {x}, {dtype})[0];
}

ValueId Builder::dequantize(ValueId q, ValueId scale, Dtype dtype) {
  return emit_typed(OpCode::dequantize, NoAttrs{}, {q, scale}, {dtype})[0];
}

ValueId Builder::laid_out(ValueId x, bool transposed) {
  ResultType lying(type(x));
  lying.layout = {.transposed = transposed};
  return emit_typed(OpCode::transpose, TransposeAttrs{.perm = {0, 1}}, {x}, {lying})[0];
}

ValueId Builder::gemm(ValueId a, ValueId b, const GemmAttrs& attrs) {
  return emit1(OpCode::gemm, attrs, {a, b});
}

ValueId Builder::max_over_ranks(int64_t ranks, ValueId x) {
  const CollectiveAttrs attrs{.ranks = ranks, .reduction = RankReduction::max, .shape = {}};
  return emit1(OpCode::all_reduce, attrs, {x});
}

}  // namespace octet
