#include "ir/ops/error_rules.h"

namespace octet::ops::error {
namespace {

using Error = std::optional<ValueId>;

ValueId first(const Node& node) {
  return node.operands.front();
}
ValueId last(const Node& node) {
  return node.operands.back();
}
ValueId result(const Node& node) {
  return node.results.front();
}

}  // namespace

Error exact(ErrorBounds&, const Node&) {
  return kNoValue;
}

Error moved(ErrorBounds& e, const Node& node) {
  return e.moved(node, node.attrs);
}

Error pad(ErrorBounds& e, const Node& node) {
  auto attrs = std::get<PadAttrs>(node.attrs);
  attrs.value = 0;
  return e.moved(node, attrs);
}

Error concatenate(ErrorBounds& e, const Node& node) {
  ValueIds parts;
  for (const ValueId id : node.operands) parts.push_back(e.error_or_zeros(id));
  return e.b.emit1(node.op, node.attrs, parts);
}

Error select(ErrorBounds& e, const Node& node) {
  const ValueId yes = e.error_or_zeros(node.in(Select::yes));
  const ValueId no = e.error_or_zeros(node.in(Select::no));
  return e.b.select(e.value(node.in(Select::condition)), yes, no);
}

Error rounded(ErrorBounds& e, const Node& node) {
  return e.sum(e.error(first(node)), e.size(result(node)));
}

Error rounded_both(ErrorBounds& e, const Node& node) {
  const ValueId errors = e.sum(e.error(first(node)), e.error(last(node)));
  return e.sum(errors, e.size(result(node)));
}

Error exp(ErrorBounds& e, const Node& node) {
  const ValueId y = e.size(result(node));
  return e.sum(e.product(y, e.error(first(node))), y);
}

Error log(ErrorBounds& e, const Node& node) {
  const ValueId x = e.size(first(node));
  return e.sum(e.quotient(e.error(first(node)), x), e.size(result(node)));
}

Error sqrt(ErrorBounds& e, const Node& node) {
  const ValueId y = e.size(result(node));
  return e.sum(e.quotient(e.error(first(node)), y), y);
}

Error rsqrt(ErrorBounds& e, const Node& node) {
  const ValueId x = e.size(first(node)), y = e.size(result(node));
  return e.sum(e.quotient(e.product(y, e.error(first(node))), x), y);
}

Error square(ErrorBounds& e, const Node& node) {
  const ValueId slope = e.b.scaled(e.size(first(node)), 2);
  return e.sum(e.product(slope, e.error(first(node))), e.size(result(node)));
}

Error mul(ErrorBounds& e, const Node& node) {
  const ValueId a = first(node), b = last(node);
  const ValueId of_b = e.product(e.size(a), e.error(b)), of_a = e.product(e.size(b), e.error(a));
  return e.sum(e.size(result(node)), e.sum(of_b, of_a));
}

Error div(ErrorBounds& e, const Node& node) {
  const ValueId a = first(node), b = last(node), y = e.size(result(node));
  const ValueId errors = e.sum(e.error(a), e.product(y, e.error(b)));
  return e.sum(y, e.quotient(errors, e.size(b)));
}

Error rescale(ErrorBounds& e, const Node& node) {
  const ValueId x = node.in(Rescale::x), factor = node.in(Rescale::factor);
  if (e.error(factor) != kNoValue) return std::nullopt;
  const ValueId y = e.size(result(node));
  return e.sum(y, e.error(x) == kNoValue ? kNoValue : e.b.rescale(e.error(x), e.size(factor)));
}

// Error of reduce_sum and scatter_add.
Error sum(ErrorBounds& e, const Node& node) {
  ValueIds operands = e.values(node.operands);
  operands[0] = e.sum(e.size(first(node)), e.error(first(node)));
  return e.b.emit1(node.op, node.attrs, operands);
}

Error dot(ErrorBounds& e, const Node& node) {
  const auto product = [&](ValueId a, ValueId c) {
    return a == kNoValue || c == kNoValue ? kNoValue : e.b.emit1(node.op, node.attrs, {a, c});
  };
  const ValueId a = e.size(first(node)), c = e.size(last(node));
  const ValueId sizes = product(a, c);
  const ValueId of_a = product(e.error(first(node)), c), of_c = product(a, e.error(last(node)));
  return e.sum(sizes, e.sum(of_a, of_c));
}

}  // namespace octet::ops::error
