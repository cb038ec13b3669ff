// How far rounding moves values, as nodes of a graph: what an error rule sees and gives
// (OpDef::error; train/prove_bounds applies them).
//
// The error e of a value counts units of rounding: of a computation that rounds each step once it
// is at most u e (Higham 2002, running error analysis). Rules add magnitudes, so that e holds for
// any order of the sums:
//
//   e(f(x, ...)) = |f(x, ...)| + sum of |df/dx| e(x)      e(sum x) = sum of (|x| + e(x))
//
// An exact value has no error, kNoValue. Errors are f32, of their values' shapes.
#pragma once

#include <map>

#include "ir/builder.h"

namespace octet {

class ErrorBounds {
 public:
  // Bounds of nodes of `from`, whose values are repeated by `builder`.
  ErrorBounds(const Graph& from, Builder& builder) : b(builder), from_(from) {}

  Builder& b;

  void set_value(ValueId id, ValueId repeated) { values_[id] = repeated; }
  void set_error(ValueId id, ValueId error) { errors_[id] = error; }

  // A value and its error in the new graph, by its name in the old one.
  ValueId value(ValueId id) const { return values_.at(id); }
  ValueIds values(const ValueIds& ids) const;
  ValueId error(ValueId id) const;
  ValueId error_or_zeros(ValueId id);
  // |x| in f32.
  ValueId size(ValueId id);
  // Arithmetic of errors, where kNoValue is 0.
  ValueId sum(ValueId a, ValueId c) { return a == kNoValue ? c : c == kNoValue ? a : b.add(a, c); }
  ValueId product(ValueId factor, ValueId of) {
    return of == kNoValue ? kNoValue : b.mul(factor, of);
  }
  ValueId quotient(ValueId of, ValueId by) { return of == kNoValue ? kNoValue : b.div(of, by); }
  // The op on the error of its first operand.
  ValueId moved(const Node& node, const Attrs& attrs);

 private:
  const Graph& from_;
  std::map<ValueId, ValueId> values_{{kNoValue, kNoValue}}, errors_;
};

}  // namespace octet
