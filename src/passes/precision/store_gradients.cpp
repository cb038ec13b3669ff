#include "passes/precision/store_gradients.h"

#include <algorithm>
#include <map>
#include <set>

#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

class Storer {
 public:
  explicit Storer(const Graph& typed) : typed_(typed), rewriter_(typed), b_(rewriter_.builder()) {
    for (const GraphOutput& output : typed.outputs)
      (is_gradient_name(output.name) ? gradients_ : others_).insert(output.value);
    find_stored();
  }

  Graph run() {
    for (const Node& node : typed_.nodes) {
      b_.tag = node.tag;
      if (stored_.contains(node.out(0))) {
        store(node);
      } else if (node.op == OpCode::rescale && stored_.contains(node.in(Rescale::x))) {
        const ValueId factor = rewriter_.map(node.in(Rescale::factor));
        rewriter_.set(node.out(Rescale::y), value_of(node.in(Rescale::x), factor));
      } else {
        rewriter_.copy(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  // Values that are rounded to fewer bytes, and read by gradients' rescales alone.
  void find_stored() {
    const auto readers = uses(typed_);
    for (const Node& node : typed_.nodes) {
      if (node.op != OpCode::cast_in) continue;
      const auto& attrs = std::get<CastInAttrs>(node.attrs);
      const ValueId y = node.out(Unary::y);
      const bool is_narrow = attrs.dtype == Dtype::fp16 || is_quantized(attrs.dtype);
      if (attrs.direction == Direction::backward || !is_narrow || others_.contains(y)) continue;
      const bool are_gradients = std::ranges::all_of(readers[y], [&](NodeId n) {
        const Node& reader = typed_.node(n);
        return reader.op == OpCode::rescale && reader.in(Rescale::x) == y &&
               gradients_.contains(reader.out(Rescale::y));
      });
      if (are_gradients && (gradients_.contains(y) || !readers[y].empty())) stored_.insert(y);
    }
  }

  ValueId one() {
    if (one_ == kNoValue) one_ = b_.fill({}, 1);
    return one_;
  }

  // The data; where they are a gradient themselves, their scale is 1.
  void store(const Node& node) {
    const Dtype dtype = std::get<CastInAttrs>(node.attrs).dtype;
    const ValueId x = rewriter_.map(node.in(Unary::x)), y = node.out(Unary::y);
    data_[y] = is_quantized(dtype) ? b_.emit_typed(OpCode::quantize, QuantizeAttrs{}, {x, one()},
                                                   {dtype})[Quantize::q]
               : b_.type(x).dtype == dtype ? x
                                           : b_.cast(x, dtype);
    if (gradients_.contains(y)) rewriter_.set(y, value_of(y, one()));
  }

  ValueId value_of(ValueId old_id, ValueId scale) {
    const ValueId data = data_.at(old_id);
    if (is_quantized(b_.type(data).dtype)) return b_.dequantize(data, scale, Dtype::f32);
    return b_.emit_typed(OpCode::rescale, NoAttrs{}, {data, scale}, {Dtype::f32})[Rescale::y];
  }

  const Graph& typed_;
  Rewriter rewriter_;
  Builder& b_;
  std::set<ValueId> gradients_, others_, stored_;  // of the old graph
  std::map<ValueId, ValueId> data_;                // of `stored_` -> new value
  ValueId one_ = kNoValue;
};

}  // namespace

Graph store_gradients(const Graph& typed) {
  return Storer(typed).run();
}

bool is_stored_gradient(const Graph& typed, ValueId gradient) {
  const Node* value = typed.producer(gradient);
  if (value == nullptr) return false;
  const bool widens = value->op == OpCode::rescale || value->op == OpCode::dequantize;
  return widens && typed.type(value->operands[0]).n_bytes() < typed.type(gradient).n_bytes();
}

StoredSum store_sum(Builder& builder, ValueId sum, ValueId amax) {
  const ValueId scale = builder.unary(OpCode::power_of_two, builder.scaled(amax, 0x1p-14));
  const ValueId inverse = builder.div(builder.fill({}, 1), scale);
  const ValueIds data =
      builder.emit_typed(OpCode::rescale, NoAttrs{}, {sum, inverse}, {Dtype::fp16});
  return {.data = data[Rescale::y], .scale = scale};
}

ValueId value_of(Builder& builder, const StoredSum& sum) {
  return builder.emit_typed(OpCode::rescale, NoAttrs{}, {sum.data, sum.scale},
                            {Dtype::f32})[Rescale::y];
}

}  // namespace octet
