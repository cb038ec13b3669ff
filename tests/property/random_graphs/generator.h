// Random graphs of 10 to 60 nodes over every op: shapes and attributes come from the op cases or
// from what the graph holds.
#pragma once

#include <map>

#include "property/random_graphs/operands.h"

namespace octet::random_graphs {

enum class Kind : uint8_t {
  logical,  // every op that has a Logical form; what has no gradient reads through stop_gradient
  smooth,   // Logical, and the loss has a gradient along every path
  typed,    // every op, f32 floats
};

struct RandomGraph {
  Graph graph;
  reference::Tensors inputs;
  Kind kind = Kind::logical;
};

inline constexpr size_t kMinNodes = 10, kMaxNodes = 60;

class Generator {
 public:
  Generator(uint64_t seed, Kind kind) : random_(seed), kind_(kind) {
    state_.graph.phase = kind == Kind::typed ? Phase::typed : Phase::logical;
    state_.graph.name = "random_" + std::to_string(seed);
  }

  RandomGraph run() {
    const size_t wanted = static_cast<size_t>(draw(random_, kMinNodes, kMaxNodes - 16));
    while (state_.graph.nodes.size() < wanted) {
      const State before = state_;
      step();
      if (state_.graph.nodes.size() > kMaxNodes - 16) state_ = before;
    }
    finish();
    return {std::move(state_.graph), std::move(state_.inputs), kind_};
  }

 private:
  void step() {
    Operands operands(state_, random_);
    operands.builder().tag = {.layer = static_cast<int>(draw(random_, -1, 2)),
                              .role = Role::forward,
                              .origin = chance(random_, 0.5) ? "block \"a\"" : ""};
    const auto op = static_cast<OpCode>(draw(random_, 0, kOpCount - 1));
    if (kind_ == Kind::smooth && (has_no_gradient(op) || op == OpCode::stop_gradient)) return;
    if (has_own_shape(op) && chance(random_, 0.5)) {
      emit_on(operands, op, operands.candidate(operands.float_dtype(), is_step(op)));
    } else {
      emit_case(operands, op);
    }
  }

  // Ops with float results through which no gradient flows.
  static bool has_no_gradient(OpCode op) {
    return op_def(op).vjp == nullptr && op != OpCode::stop_gradient && op != OpCode::fill &&
           op != OpCode::iota && !is_step(op);
  }

  // Cases without a gradient of an op that has one in others.
  static bool has_no_gradient(const op_cases::OpCase& c) {
    return std::find(c.no_gradient.begin(), c.no_gradient.end(), 0) != c.no_gradient.end();
  }

  // Ops that take a value of any shape.
  static bool has_own_shape(OpCode op) {
    return op <= OpCode::tanh || (op >= OpCode::erf && op <= OpCode::cos) ||
           op == OpCode::stop_gradient || op == OpCode::transpose || op == OpCode::reduce_sum ||
           op == OpCode::reduce_max || op == OpCode::broadcast || op == OpCode::add ||
           op == OpCode::mul || op == OpCode::sub;
  }

  void emit_on(Operands& operands, OpCode op, ValueId x) {
    if (x == kNoValue) return;
    x = operands.in_bound(x, op);
    const Shape shape = operands.builder().shape(x);
    if (op == OpCode::log || op == OpCode::sqrt || op == OpCode::rsqrt) {
      x = operands.emit1(OpCode::logistic, NoAttrs{}, {x});
    }
    const Attrs attrs = own_attrs(op, shape);
    if (op != OpCode::add && op != OpCode::mul && op != OpCode::sub) {
      operands.emit(op, attrs, {x});
      return;
    }
    const ValueId other = operands.pick(op_cases::tensor(shape), op);
    operands.emit(op, attrs, {x, other});
  }

  Attrs own_attrs(OpCode op, const Shape& shape) {
    Shape axes(shape.size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
    if (op == OpCode::transpose) {
      std::shuffle(axes.begin(), axes.end(), random_);
      return TransposeAttrs{axes};
    }
    if (op == OpCode::reduce_sum || op == OpCode::reduce_max) {
      std::erase_if(axes, [&](int64_t) { return chance(random_, 0.5); });
      return AxesAttrs{axes};
    }
    if (op != OpCode::broadcast) return NoAttrs{};
    Shape wide = shape;
    const int64_t place = draw(random_, 0, std::ssize(shape));
    wide.insert(wide.begin() + place, draw(random_, 1, 3));
    for (int64_t& axis : axes) axis += axis >= place ? 1 : 0;
    return BroadcastAttrs{wide, axes};
  }

  void emit_case(Operands& operands, OpCode op) {
    std::vector<const op_cases::OpCase*> found;
    for (const op_cases::OpCase& c : op_cases::op_cases()) {
      const bool phase_fits = state_.graph.phase == Phase::typed || !is_typed(c);
      const bool slopes_fit = kind_ != Kind::smooth || !has_no_gradient(c);
      if (c.op == op && phase_fits && slopes_fit && is_small(c) && !has_documents(c))
        found.push_back(&c);
    }
    if (found.empty()) return;
    const auto& c = *found[static_cast<size_t>(draw(random_, 0, std::ssize(found) - 1))];
    const OpDef& def = op_def(op);
    std::vector<ValueId> ids;
    for (const op_cases::OperandCase& o : c.operands) {
      ids.push_back(operands.pick(o, op));
      // Operands without a gradient must not stand between a parameter and the loss.
      const bool blocked = has_no_gradient(op) || has_no_gradient(c);
      if (blocked && ids.back() != kNoValue) ids.back() = stopped(operands, ids.back());
    }
    const auto results = operands.emit(op, c.attrs, ids, c.results);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] == kNoValue) continue;
      const bool statistic = def.statistics.contains(i);
      if (i > 0 && statistic) operands.at(results[i]).usable = false;
      if (op == OpCode::adamw_step) operands.at(results[i]).usable = false;  // rounded to f32
    }
  }

  ValueId stopped(Operands& operands, ValueId x) {
    if (operands.builder().type(x).dtype != Dtype::real) return x;
    return operands.emit1(OpCode::stop_gradient, NoAttrs{}, {x});
  }

  // Ranges of keys that are none would hide all keys.
  static bool has_documents(const op_cases::OpCase& c) {
    return std::any_of(c.operands.begin(), c.operands.end(),
                       [](const auto& o) { return op_cases::is_key_range(o.fill); });
  }

  static bool is_small(const op_cases::OpCase& c) {
    int64_t n = 0;
    for (const auto& o : c.operands) n += o.type.n_elems();
    return n <= 400;
  }

  // Outputs: what nobody reads, one value twice, a state's next value; and a loss over some of
  // them.
  void finish() {
    Operands operands(state_, random_);
    Builder& b = operands.builder();
    const auto used = uses(state_.graph);
    std::vector<ValueId> ends;
    for (const Node& node : state_.graph.nodes) {
      for (const ValueId id : node.results) {
        if (id != kNoValue && used[static_cast<size_t>(id)].empty()) ends.push_back(id);
      }
    }
    ValueId loss = operands.emit1(OpCode::fill, FillAttrs{}, {});
    int n_terms = 0;
    for (const ValueId id : ends) {
      if (b.type(id).dtype != operands.float_dtype() || !operands.at(id).usable) continue;
      if (++n_terms > 4) break;
      const ValueId x = operands.in_bound(id, OpCode::exp);
      Shape axes(b.shape(x).size());
      for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
      loss = operands.emit1(OpCode::add, NoAttrs{},
                            {loss, operands.emit1(OpCode::reduce_sum, AxesAttrs{axes}, {x})});
    }
    b.output("loss", loss);
    for (const ValueId id : ends) b.output("out" + std::to_string(id), id);
    b.output("alias", ends.front());
    const TensorType type = b.type(ends.back());
    const ValueId buffer = b.input(InputKind::state, "buffer", type);
    state_.inputs["buffer"].assign(static_cast<size_t>(type.n_stored()), 1);
    b.output("next", ends.back(), buffer);
  }

  Random random_;
  Kind kind_;
  State state_;
};

// The same graphs in every run, as many of each kind.
inline const std::vector<RandomGraph>& graphs() {
  static const std::vector<RandomGraph> all = [] {
    std::vector<RandomGraph> result;
    for (uint64_t seed = 0; seed < 1560; ++seed) {
      result.push_back(Generator(seed, static_cast<Kind>(seed % 3)).run());
    }
    return result;
  }();
  return all;
}

}  // namespace octet::random_graphs
