#include "train/prove_bounds.h"

#include <algorithm>
#include <set>

#include "formats/dtype.h"
#include "ir/error_bounds.h"
#include "ir/op_def.h"
#include "passes/rewrite/simplify.h"

namespace octet {
namespace {

bool is_float(const TensorType& type) {
  return is_high_precision(type.dtype) || is_quantized(type.dtype);
}

// Repeats a graph of primitives, with the error of each value beside it.
class Magnitudes {
 public:
  Magnitudes(const Graph& from, Graph& to) : from_(from), b_(to), bounds_(from, b_) {}

  void build() {
    for (const GraphInput& input : from_.inputs)
      bounds_.set_value(input.value, b_.input(input.kind, input.name, from_.type(input.value)));
    for (const Node& node : from_.nodes) {
      const ValueIds results = b_.emit_typed(node.op, node.attrs, bounds_.values(node.operands),
                                             result_types(from_, node));
      for (size_t i = 0; i < node.results.size(); ++i)
        bounds_.set_value(node.results[i], results[i]);
      if (const auto error = error_of(node)) {
        bounds_.set_error(node.results[0], *error);
      } else {
        unknown_.insert(node.results.begin(), node.results.end());
      }
    }
    for (const auto& [name, id, updates] : from_.outputs) {
      if (!is_float(from_.type(id)) || unknown_.contains(id)) continue;
      b_.output(name, bounds_.error_or_zeros(id));
    }
  }

 private:
  // Nothing where no rule says it.
  std::optional<ValueId> error_of(const Node& node) {
    const auto is_unknown = [&](ValueId id) { return unknown_.contains(id); };
    if (std::ranges::any_of(node.operands, is_unknown) || node.results.size() > 1)
      return std::nullopt;
    if (!is_float(from_.type(node.results[0]))) return kNoValue;
    const ErrorFn rule = op_def(node.op).error;
    return rule == nullptr ? std::nullopt : rule(bounds_, node);
  }

  const Graph& from_;
  Builder b_;
  ErrorBounds bounds_;
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
