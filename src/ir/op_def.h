// Definition of an op for the compiler: a line of the list in ir/ops/ops.def, and plain function
// pointers in one constant per op.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/ops/slots.h"

namespace octet {

class Builder;
class ErrorBounds;
class Scaler;
struct Scaled;
struct ScaleCall;

// Work of one execution, for reports, selection and rooflines.
struct Cost {
  double flops = 0;
  double bytes = 0;  // fewest bytes moved: operands read once, results written once
};

// Closeness to the reference's results that kernels promise: `same` bits, which move or are rounded
// once; `one_code`, where values are computed before they become eight bits: the next code at most;
// `near`, a distance by dtype and magnitude (train/prove_kernels.h).
enum class Closeness : uint8_t { near, one_code, same };

// Which factor recipe unit_scaling has for it or its gradient (passes/scalify/unit_scaling.h);
// kept: none is wanted, since results are as large as operands.
enum class UnitScale : uint8_t { none, kept, gemm, sum, gate, attention, norm, table, loss };

// Input of a vjp: the forward node and the gradients of its results (kNoValue where none arrives).
// wanted: by value, whether its gradient is asked for; nullptr: of all.
struct VjpCall {
  const Node& node;
  std::span<const ValueId> dresults;
  const ById<bool>* wanted = nullptr;
  bool wants(SlotId operand) const {
    const ValueId id = node.in(operand);
    return id != kNoValue && (wanted == nullptr || (*wanted)[id]);
  }
};

// A rule of an op. That of a quantizer goes by what the node says of its results, by slot, too.
template <typename R, typename A, typename B>
class Rule {
 public:
  using Said = std::span<const ResultType>;
  constexpr Rule(std::nullptr_t) {}
  constexpr Rule(R (*rule)(A, B)) : rule_(rule) {}
  constexpr Rule(R (*rule)(A, B, Said)) : typed_(rule) {}
  R operator()(A a, B b, Said said = {}) const { return typed_ ? typed_(a, b, said) : rule_(a, b); }
  constexpr bool operator==(std::nullptr_t) const { return !rule_ && !typed_; }

 private:
  R (*rule_)(A, B) = nullptr;
  R (*typed_)(A, B, Said) = nullptr;
};
// Types by slot: absent_type() for an operand that is absent, and for a result that a node with
// these attributes and operands does not have.
using InferFn = Rule<std::vector<TensorType>, const Attrs&, std::span<const TensorType>>;
// Appends the backward nodes; returns one gradient per operand, kNoValue where none flows: of all
// where none arrives, which the rule itself need not ask.
class VjpFn {
 public:
  constexpr VjpFn(std::nullptr_t) {}
  constexpr VjpFn(ValueIds (*rule)(Builder& builder, const VjpCall& call)) : rule_(rule) {}
  ValueIds operator()(Builder& builder, const VjpCall& call) const;
  constexpr bool operator==(std::nullptr_t) const { return !rule_; }

 private:
  ValueIds (*rule_)(Builder& builder, const VjpCall& call) = nullptr;
};
// Appends the same meaning in simpler ops; returns one value per slot of the node's results.
using DecomposeFn = Rule<ValueIds, Builder&, const Node&>;
// Emits the op on scaled operands; returns one scaled value per slot of the results (ir/scale.h).
using ScaleFn = std::vector<Scaled> (*)(Scaler& scaler, const ScaleCall& call);
using CostFn = Cost (*)(const Graph& graph, const Node& node);
// Emits how far rounding may move the op's one result, given that of its operands: kNoValue where
// it is exact, nothing where the rule does not say it (ir/error_bounds.h).
using ErrorFn = std::optional<ValueId> (*)(ErrorBounds& bounds, const Node& node);

// Result `result` may take the buffer of operand `operand`, if that is its last use.
struct InplacePair {
  SlotId result = 0, operand = 0;
};

// The attributes that an op takes, at their defaults.
template <typename A>
Attrs default_attrs() {
  return A{};
}

// A line of the list of ops (ir/ops/ops.def): what an op takes and gives, and facts that others ask
// for where they would name ops.
struct OpRow {
  OpCode code;
  std::string_view name;
  SlotList operands, results;
  Attrs (*attrs)();  // at their defaults
  // The decomposition is the one definition, which the reference runs too; else it has a kernel of
  // its own.
  bool is_composed = false;
  SlotSet needs_unscaled = {};  // operands that the scale rule needs unscaled, with scale 1
  SlotSet statistics = {};      // results that stay f32 under every recipe
  // If not 0, the op has the attribute `amax`: set, it gives its last two results, what the op amax
  // gives of its first amax_results results as they are stored.
  uint8_t amax_results = 0;
  // The op, it or another, that gives its results as codes: the first amax_results, or one.
  std::optional<OpCode> quantized = {};
  StoreSlots store = {};  // of such an op
  SlotId kept = kNoSlot;  // of it: the operands at `scales`, each as codes and scales; the first
  NormSlots norm = {};
  SlotId addend = kNoSlot;  // added to the first result: where fusing puts the rest of a sum
  // One scale a tensor goes through: elements move unchanged.
  bool moves = false;
  Closeness closeness = Closeness::near;  // of the kernels' results to the reference's
  // True if the places in OpRules::scales are inputs of a function that is not linear, which a
  // backward pass keeps.
  bool saves = false;
  // True if the place of a scale takes a factor f32[] of an operand that is not quantized, and if
  // the operand is quantized in runs of elements, as moments are.
  bool takes_factors = false, takes_runs = false;
  bool takes_layouts = false;       // operands may lie transposed
  std::optional<double> unit = {};  // (x, unit) -> x
  bool commutes = false;            // (a, b) is (b, a)
  bool is_abstract = false;         // no kernel has it: a pass puts others in its place
  bool is_view = false;             // of the operand's bytes, where shards are equally long
  bool is_gradient = false;         // of the layer of that name without "_grad"
  bool is_norm = false;             // a norm of rows or its gradient
  bool is_transcendental = false;   // exp, log and the like, which compress or expand a range
  bool is_quantizer = false;        // (x, scale[]) -> codes
  bool is_collective = false;       // between ranks, beside computing
  bool gathers = false;             // each rank's shard -> the whole
  bool scatters = false;            // the whole -> a rank's shard
  bool is_expanded = false;         // a target that lacks it has its steps before gradients
  bool sums = false;                // of collectives: adds up all ranks' x, or takes their maximum
  UnitScale unit_scale = UnitScale::none;

  // How many slots of the results are the op's own; of the two behind them the first.
  constexpr size_t own_results() const { return results.size() - (amax_results > 0 ? 2 : 0); }
  // True of norms that subtract the mean, and of their gradients.
  constexpr bool is_centred() const { return norm.mean != kNoSlot; }
};

// Rules of an op: functions of its family's file.
struct OpRules {
  InferFn infer = nullptr;  // dtype real in a result means: the float that the recipe chooses
  VjpFn vjp = nullptr;      // nullptr: no gradient flows through
  DecomposeFn decompose = nullptr;  // nullptr: a primitive
  ScaleFn scale = nullptr;          // nullptr: data and scales cannot go through
  CostFn cost = nullptr;            // nullptr: no flops, each operand and result moved once
  ErrorFn error = nullptr;          // of a primitive; nullptr: not known
  std::span<const InplacePair> inplace = {};
  // The only operands that may be quantized; but one scale a tensor goes through an op that moves.
  std::span<const ScalePlace> scales = {};
};

struct OpDef : OpRow, OpRules {};

const OpDef& op_def(OpCode code);
// nullptr where no op has this name.
const OpDef* find_op(std::string_view name);
Cost cost_of(const Graph& graph, const Node& node);
inline bool is_norm(OpCode op) {
  return op_def(op).is_norm && !op_def(op).is_gradient;
}
inline bool is_norm_gradient(OpCode op) {
  return op_def(op).is_norm && op_def(op).is_gradient;
}
// True of ops with `saves` but gradients.
inline bool is_norm_or_activation(OpCode op) {
  return op_def(op).saves && !op_def(op).is_gradient;
}

// The operands with room for every slot.
ValueIds all_operands(const Node& node);
// True if a node reads quantized operands.
bool reads_quantized(const Graph& graph, const Node& node);
// True if the attribute `amax` is there and set.
bool emits_amax(const Attrs& attrs);
Attrs with_amax(Attrs attrs, bool amax);
// Throws Error(invalid_argument) for too few or too many operands, or where a required one is
// absent, and std::bad_variant_access for attributes of another op.
void check_operands(const OpDef& def, const Attrs& attrs, std::span<const ValueId> operands);
// Throws Error(invalid_argument) for a quantized operand that the op does not take, one without
// scales of its scale_type(), and scales of one that is not quantized. Types by slot.
void check_scales(const OpDef& def, std::span<const TensorType> operands);

}  // namespace octet
