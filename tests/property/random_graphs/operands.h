// Operands of random graphs: taken from what the graph holds, moved into the shape that is wanted,
// and kept within a bound, so that nodes hang together and numbers stay tame.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "ir/builder.h"
#include "op_cases/op_cases.h"

namespace octet::random_graphs {

using Random = std::mt19937_64;

inline int64_t draw(Random& random, int64_t low, int64_t high) {  // both ends included
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}
inline bool chance(Random& random, double p) {
  return std::uniform_real_distribution<double>(0, 1)(random) < p;
}

struct Info {
  double bound = 6;     // magnitude that the value hardly exceeds
  bool exact = true;    // made by primitives alone: the same bits after decomposition
  bool usable = false;  // may become an operand
};

struct State {
  Graph graph;
  reference::Tensors inputs;
  std::vector<Info> info;  // by value
};

inline bool is_primitive(OpCode op) {
  return op < OpCode::gemm;
}
inline bool is_move(OpCode op) {
  return op >= OpCode::broadcast && op <= OpCode::concatenate;
}
// Ops that jump where their operands change a little.
inline bool is_step(OpCode op) {
  return op == OpCode::sign || op == OpCode::argmax || op == OpCode::argmin ||
         op == OpCode::power_of_two || op == OpCode::is_finite ||
         op_def(op).scale == op_def(OpCode::less).scale;  // a comparison
}
// Ops that may read large values.
inline bool is_tame(OpCode op) {
  return is_move(op) || op == OpCode::neg || op == OpCode::abs || op == OpCode::add ||
         op == OpCode::sub || op == OpCode::maximum || op == OpCode::minimum ||
         op == OpCode::select || op == OpCode::stop_gradient || op == OpCode::cast;
}

inline double bound_of(OpCode op, const std::vector<double>& operands) {
  double largest = 0, sum = 0;
  for (const double x : operands) {
    largest = std::max(largest, x);
    sum += x;
  }
  switch (op) {
    case OpCode::tanh:
    case OpCode::erf:
    case OpCode::logistic:
    case OpCode::sin:
    case OpCode::cos:
    case OpCode::sign:
    case OpCode::less:
    case OpCode::equal:
    case OpCode::not_equal:
    case OpCode::less_equal:
    case OpCode::greater:
    case OpCode::greater_equal:
    case OpCode::is_finite:
      return 1;
    case OpCode::add:
    case OpCode::sub:
      return sum;
    case OpCode::square:
      return largest * largest;
    case OpCode::integer_pow:
    case OpCode::reduce_prod:
      return 1e8;
    case OpCode::fill:
    case OpCode::iota:
      return 6;
    case OpCode::reduce_max:
      return largest;
    default:
      return is_tame(op) ? largest : 1000;
  }
}

class Operands {
 public:
  Operands(State& state, Random& random) : state_(state), random_(random), builder_(state.graph) {}

  Builder& builder() { return builder_; }

  std::vector<ValueId> emit(OpCode op, const Attrs& attrs, const std::vector<ValueId>& operands,
                            const std::vector<ResultType>& said = {}) {
    Info info{.exact = is_primitive(op), .usable = true};
    std::vector<double> bounds;
    for (const ValueId id : operands) {
      if (id == kNoValue) continue;
      bounds.push_back(at(id).bound);
      info.exact = info.exact && at(id).exact;
    }
    info.bound = bound_of(op, bounds);
    const auto results =
        builder_.emit_typed(op, attrs, operands, op_cases::said_types(op, float_dtype(), said));
    state_.info.resize(state_.graph.values.size(), info);
    return results;
  }
  ValueId emit1(OpCode op, const Attrs& attrs, const std::vector<ValueId>& operands) {
    return emit(op, attrs, operands)[0];
  }
  Info& at(ValueId id) { return state_.info[static_cast<size_t>(id)]; }
  Dtype float_dtype() const {
    return state_.graph.phase == Phase::logical ? Dtype::real : Dtype::f32;
  }

  ValueId fresh(op_cases::OperandCase o, TensorType type) {
    o.type = type;
    if (o.fill == op_cases::Fill::derived) o.fill = op_cases::Fill::positive;
    const std::string name = "x" + std::to_string(state_.inputs.size());
    const InputKind kinds[] = {InputKind::parameter, InputKind::batch, InputKind::state};
    auto kind = is_float(type.dtype) ? kinds[draw(random_, 0, 2)] : InputKind::batch;
    if (o.fill == op_cases::Fill::constant) kind = InputKind::step_scalar;
    const ValueId id = builder_.input(kind, name, type);
    state_.inputs[name] = op_cases::fill_values(o, random_);
    state_.info.resize(state_.graph.values.size(), Info{.bound = 6, .usable = true});
    if (o.fill == op_cases::Fill::wide) at(id).bound = 100;
    return id;
  }

  // A value of this dtype that may be read, or kNoValue.
  ValueId candidate(Dtype dtype, bool exact) {
    std::vector<ValueId> found;
    for (size_t i = 0; i < state_.info.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      const bool fits = state_.graph.type(id).dtype == dtype && at(id).usable;
      if (fits && (at(id).exact || !exact)) found.push_back(id);
    }
    if (found.empty()) return kNoValue;
    return found[static_cast<size_t>(draw(random_, 0, std::ssize(found) - 1))];
  }

  ValueId in_bound(ValueId x, OpCode user) {
    const double limit = is_tame(user) ? 1000 : 8;
    return at(x).bound > limit ? emit1(OpCode::tanh, NoAttrs{}, {x}) : x;
  }

  // The elements of x, some of them or some more, in this shape.
  ValueId adapt(ValueId x, const Shape& shape) {
    if (builder_.shape(x) == shape) return x;
    const int64_t have = builder_.type(x).n_elems(), want = n_elems(shape);
    if (have != want) {
      if (builder_.shape(x).size() != 1) x = emit1(OpCode::reshape, ReshapeAttrs{{have}}, {x});
      x = resized(x, have, want);
    }
    return builder_.shape(x) == shape ? x : emit1(OpCode::reshape, ReshapeAttrs{shape}, {x});
  }

  ValueId pick(const op_cases::OperandCase& o, OpCode user) {
    using op_cases::Fill;
    if (o.absent) return kNoValue;
    TensorType type = o.type;
    if (type.dtype == Dtype::real) type.dtype = float_dtype();
    const bool plain = type.dtype == float_dtype();
    // Quantized values have scales of their own.
    const bool reusable = o.fill != Fill::constant && o.fill != Fill::remainder &&
                          type.dtype != Dtype::bf16 && !type.is_scaled();
    ValueId x = reusable && !chance(random_, 0.2) ? candidate(type.dtype, is_step(user)) : kNoValue;
    if (x == kNoValue) return fresh(o, type);
    x = adapt(x, type.shape);
    if (!plain) return x;
    x = in_bound(x, user);
    const bool is_negative = o.fill == Fill::negative;
    if (o.fill != Fill::positive && o.fill != Fill::derived && !is_negative) return x;
    x = emit1(OpCode::square, NoAttrs{}, {in_bound(x, OpCode::square)});
    const ValueId quarter = emit1(OpCode::fill, FillAttrs{.shape = type.shape, .value = 0.25}, {});
    x = emit1(OpCode::add, NoAttrs{}, {x, quarter});
    return is_negative ? emit1(OpCode::neg, NoAttrs{}, {x}) : x;
  }

 private:
  ValueId resized(ValueId x, int64_t have, int64_t want) {
    if (have > want) {
      const int64_t start = draw(random_, 0, have - want);
      return emit1(OpCode::slice, SliceAttrs{{start}, {start + want}, {1}}, {x});
    }
    if (want % have == 0 && chance(random_, 0.5)) {
      return emit1(OpCode::broadcast, BroadcastAttrs{{want / have, have}, {1}}, {x});
    }
    const int64_t low = draw(random_, 0, want - have);
    return emit1(OpCode::pad, PadAttrs{{low}, {want - have - low}, {0}, 0}, {x});
  }

  State& state_;
  Random& random_;
  Builder builder_;
};

}  // namespace octet::random_graphs
