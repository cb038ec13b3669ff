#include "train/prove_bounds.h"

#include <algorithm>
#include <map>
#include <set>

#include "formats/dtype.h"
#include "ir/builder.h"
#include "passes/rewrite/simplify.h"

namespace octet {
namespace {

bool is_float(const TensorType& type) {
  return is_high_precision(type.dtype) || is_quantized(type.dtype);
}

// Repeats a graph of primitives, with the error of each value beside it; kNoValue: none.
class Magnitudes {
 public:
  Magnitudes(const Graph& from, Graph& to) : from_(from), b_(to) {}

  void build() {
    for (const GraphInput& input : from_.inputs)
      values_[input.value] = b_.input(input.kind, input.name, from_.type(input.value));
    for (const Node& node : from_.nodes) {
      const ValueIds results =
          b_.emit_typed(node.op, node.attrs, own(node), result_types(from_, node));
      for (size_t i = 0; i < node.results.size(); ++i) values_[node.results[i]] = results[i];
      const auto is_unknown = [&](ValueId id) { return unknown_.contains(id); };
      const ValueId y = node.results[0];
      const auto error = std::ranges::any_of(node.operands, is_unknown) || node.results.size() > 1
                             ? std::nullopt
                             : error_of(node);
      if (error) {
        errors_[y] = *error;
      } else {
        unknown_.insert(node.results.begin(), node.results.end());
      }
    }
    for (const auto& [name, id, updates] : from_.outputs) {
      if (!is_float(from_.type(id)) || unknown_.contains(id)) continue;
      b_.output(name, error_or_zeros(id));
    }
  }

 private:
  // Nothing where no rule says it.
  std::optional<ValueId> error_of(const Node& node) {
    if (!is_float(from_.type(node.results[0]))) return kNoValue;
    const std::optional<ValueId> moved = error_of_moved(node);
    return moved ? moved : error_of_computed(node);
  }

  // Of ops that compute nothing, or that are exact.
  std::optional<ValueId> error_of_moved(const Node& node) {
    switch (node.op) {
      case OpCode::fill:
      case OpCode::iota:
      case OpCode::sign:
      case OpCode::power_of_two:
        return kNoValue;
      case OpCode::neg:
      case OpCode::abs:
      case OpCode::stop_gradient:
      case OpCode::reshape:
      case OpCode::transpose:
      case OpCode::slice:
      case OpCode::broadcast:
      case OpCode::reduce_max:
      case OpCode::gather:
        return with_error(node, node.attrs);
      case OpCode::pad: {
        auto attrs = std::get<PadAttrs>(node.attrs);
        attrs.value = 0;
        return with_error(node, attrs);
      }
      case OpCode::concatenate: {
        ValueIds parts;
        for (const ValueId id : node.operands) parts.push_back(error_or_zeros(id));
        return b_.emit1(node.op, node.attrs, parts);
      }
      case OpCode::select:
        return b_.select(values_[node.in(Select::condition)], error_or_zeros(node.in(Select::yes)),
                         error_or_zeros(node.in(Select::no)));
      default:
        return std::nullopt;
    }
  }

  std::optional<ValueId> error_of_computed(const Node& node) {
    const ValueId x = node.operands[0], z = node.operands.back(), y = node.results[0];
    switch (node.op) {
      case OpCode::cast:
      case OpCode::dequantize:
      case OpCode::tanh:
      case OpCode::erf:
      case OpCode::logistic:
      case OpCode::sin:
      case OpCode::cos:
        return sum(error(x), size(y));
      case OpCode::add:
      case OpCode::sub:
      case OpCode::maximum:
      case OpCode::minimum:
        return sum(sum(error(x), error(z)), size(y));
      case OpCode::exp:
        return sum(product(size(y), error(x)), size(y));
      case OpCode::log:
        return sum(quotient(error(x), size(x)), size(y));
      case OpCode::sqrt:
        return sum(quotient(error(x), size(y)), size(y));
      case OpCode::rsqrt:
        return sum(quotient(product(size(y), error(x)), size(x)), size(y));
      case OpCode::square:
        return sum(product(b_.scaled(size(x), 2), error(x)), size(y));
      case OpCode::mul:
        return sum(size(y), sum(product(size(x), error(z)), product(size(z), error(x))));
      case OpCode::div:
        return sum(size(y), quotient(sum(error(x), product(size(y), error(z))), size(z)));
      case OpCode::rescale:
        if (error(z) != kNoValue) return std::nullopt;
        return sum(size(y), error(x) == kNoValue ? kNoValue : b_.rescale(error(x), size(z)));
      case OpCode::reduce_sum:
      case OpCode::scatter_add: {
        ValueIds operands = own(node);
        operands[0] = sum(size(x), error(x));
        return b_.emit1(node.op, node.attrs, operands);
      }
      case OpCode::dot: {
        const auto dot = [&](ValueId a, ValueId c) {
          return a == kNoValue || c == kNoValue ? kNoValue : b_.emit1(node.op, node.attrs, {a, c});
        };
        const ValueId a = size(x), c = size(z);
        return sum(dot(a, c), sum(dot(error(x), c), dot(a, error(z))));
      }
      default:
        return std::nullopt;
    }
  }

  ValueIds own(const Node& node) {
    ValueIds operands;
    for (const ValueId id : node.operands) operands.push_back(values_[id]);
    return operands;
  }
  // The op on the error of its first operand.
  ValueId with_error(const Node& node, const Attrs& attrs) {
    ValueIds operands = own(node);
    operands[0] = error(node.operands[0]);
    return operands[0] == kNoValue ? kNoValue : b_.emit1(node.op, attrs, operands);
  }
  ValueId error_or_zeros(ValueId id) { return error(id) == kNoValue ? zeros(id) : error(id); }

  ValueId error(ValueId id) const {
    const auto found = errors_.find(id);
    return found == errors_.end() ? kNoValue : found->second;
  }
  ValueId zeros(ValueId id) {
    return b_.emit_typed(OpCode::fill, FillAttrs{.shape = from_.type(id).shape}, {},
                         {Dtype::f32})[0];
  }
  // |x| in f32.
  ValueId size(ValueId id) {
    ValueId x = values_[id];
    if (b_.type(x).dtype != Dtype::f32) x = b_.cast(x, Dtype::f32);
    return b_.unary(OpCode::abs, x);
  }
  ValueId sum(ValueId a, ValueId c) { return a == kNoValue ? c : c == kNoValue ? a : b_.add(a, c); }
  ValueId product(ValueId factor, ValueId of) {
    return of == kNoValue ? kNoValue : b_.mul(factor, of);
  }
  ValueId quotient(ValueId of, ValueId by) { return of == kNoValue ? kNoValue : b_.div(of, by); }

  const Graph& from_;
  Builder b_;
  std::map<ValueId, ValueId> values_{{kNoValue, kNoValue}}, errors_;
  std::set<ValueId> unknown_;  // no rule says their error
};

}  // namespace

Graph magnitude_graph(const Graph& one) {
  const Graph parts = decompose_all(one);
  Graph result;
  result.name = "magnitudes";
  result.phase = one.phase;
  Magnitudes(parts, result).build();
  return result;
}

}  // namespace octet
