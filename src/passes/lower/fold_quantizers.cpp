// Quantizers: what is read of them, the ops whose results they quantize, and where their scales
// come from.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ir/ops/list.h"
#include "ir/ops/quantize_layers.h"
#include "passes/lower/fold.h"

namespace octet {
namespace {

// The slots of one op, filled with those of the same name of another.
ValueIds by_name(const ValueIds& ids, const SlotList& from, const SlotList& to) {
  ValueIds result(to.size(), kNoValue);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (const SlotId slot = to.find(from[i].name); slot != kNoSlot) result[slot] = ids[i];
  }
  return result;
}
void change_op(Form& form, OpCode op, Attrs attrs) {
  const OpDef &from = op_def(form.op), &to = op_def(op);
  form.operands = by_name(form.operands, from.operands, to.operands);
  form.results = by_name(form.results, from.results, to.results);
  form.op = op;
  form.attrs = std::move(attrs);
}

// How values are quantized per tensor, all of them alike: with a scale that is given, or with one
// of their own amax.
struct Quantizer {
  std::vector<const Node*> nodes = {};  // quantize or quantize_both, one a value
  const Node* amax = nullptr;           // nullptr where the scale is given
  const Node* scale = nullptr;          // quant_scale or delayed_scale of that amax
  const Node& front() const { return *nodes.front(); }
  const QuantizeAttrs& attrs() const { return std::get<QuantizeAttrs>(front().attrs); }
  bool both() const { return front().out(QuantizeBoth::q_transposed) != kNoValue; }
};

// The maker of the scale of a quantizer, for its target; nullptr where it comes from elsewhere.
const Node* scale_maker(const Matcher& m, const Node& quantize) {
  const auto& attrs = std::get<QuantizeAttrs>(quantize.attrs);
  const Node* scale = m.producer(quantize.in(Quantize::scale));
  const bool is_made = attrs.has_default_scaling() && scale != nullptr &&
                       (scale->op == OpCode::quant_scale || scale->op == OpCode::delayed_scale) &&
                       std::get<AmaxScaleAttrs>(scale->attrs) == scale_attrs(attrs);
  return is_made ? scale : nullptr;
}

// The node that makes the scale is now part of the form.
void make_scale(const Matcher& m, Form& form, const Node& scale, const Node* amax) {
  const StoreSlots& at = op_def(form.op).store;
  form.operands.at(at.history) = scale.in(DelayedScale::history);
  form.results.at(at.scale) = scale.out(QuantScale::scale);
  form.results.at(at.next_history) = scale.out(DelayedScale::next_history);
  form.consumed.push_back(m.id(scale));
  if (amax == nullptr) return;
  form.results.at(at.nonfinite) = amax->out(AmaxOp::nonfinite);
  form.consumed.push_back(m.id(*amax));
}

bool is_alike(const Matcher& m, const Node& a, const Node& b) {
  const auto same_type = [&](ValueId x, ValueId y) { return m.type(x) == m.type(y); };
  return a.op == b.op && a.attrs == b.attrs && a.in(Quantize::scale) == b.in(Quantize::scale) &&
         std::ranges::equal(a.results, b.results, same_type);
}

// Adds the quantizer and the amax of one of the values; says why they are not.
std::optional<std::string> add_readers(const Matcher& m, ValueId value, Quantizer& found) {
  if (m.is_graph_output(value)) return "handed out";
  const size_t n = found.nodes.size();
  if (found.amax == nullptr) found.amax = m.reader(value, OpCode::amax);
  for (const Node* node : m.readers(value)) {
    if (op_def(node->op).is_quantizer && found.nodes.size() == n) {
      found.nodes.push_back(node);
    } else if (node != found.amax) {
      return fmt::format("read by {} too", op_def(node->op).name);
    }
  }
  if (!found.attrs().has_default_scaling()) return "its scale or rounding is none of a fused op's";
  if (!is_alike(m, found.front(), *found.nodes.back())) return "quantized otherwise";
  return std::nullopt;
}

// Quantizer of all values; says why there is no such.
std::optional<std::string> find_quantizer(const Matcher& m, std::span<const ValueId> values,
                                          Quantizer& found) {
  for (const ValueId value : values) {
    if (auto why = add_readers(m, value, found)) return why;
  }
  if (found.amax == nullptr) return std::nullopt;
  found.scale = scale_maker(m, found.front());
  const ValueId amax = found.amax->out(AmaxOp::amax);
  const bool is_own = found.scale != nullptr && found.scale->in(QuantScale::amax) == amax &&
                      m.read_once(amax) &&
                      std::ranges::is_permutation(found.amax->operands, values);
  if (!is_own) return "its scale is not from its own amax alone";
  return std::nullopt;
}

// An operand that GEMMs read in blocks too is rounded before it is quantized.
bool has_quantizer(const Matcher& m, ValueId value) {
  const auto readers = m.readers(value);
  return std::ranges::any_of(readers, [](const Node* n) { return op_def(n->op).is_quantizer; }) &&
         m.reader(value, OpCode::quantize_groups) == nullptr;
}

// Products store E4M3 codes by row, with a scale that does not change.
bool is_gemm_store(const Matcher& m, const Quantizer& q) {
  const TensorType& type = m.type(q.front().out(Quantize::q));
  return !q.both() && !type.layout.transposed && type.dtype == Dtype::e4m3 &&
         m.producer(q.front().in(Quantize::scale), OpCode::fill) != nullptr;
}

// A norm that is given its statistics is given the scale of its codes too.
bool has_known_statistics(const Form& form) {
  const SlotId rstd = op_def(form.op).norm.known_rstd;
  return rstd != kNoSlot && form.operands[rstd] != kNoValue;
}

// Slots of `to` have the names of the op's.
Form with_store(const Matcher& m, const Form& form, const OpDef& to, const Quantizer& q) {
  Form result = form;
  change_op(result, to.code,
            to.code == form.op ? form.attrs : join({form.attrs, q.attrs(), q.both()}));
  for (size_t i = 0; i < q.nodes.size(); ++i) {
    result.results[i] = q.nodes[i]->out(Quantize::q);
    if (q.both())
      result.results.at(to.store.transposed + i) = q.nodes[i]->out(QuantizeBoth::q_transposed);
    result.consumed.push_back(m.id(*q.nodes[i]));
  }
  if (q.scale != nullptr) {
    make_scale(m, result, *q.scale, q.amax);
    return result;
  }
  // A scale that is given may be made between the op and its quantizer.
  result.operands[to.store.given_scale] = q.front().in(Quantize::scale);
  const NodeId first = m.id(*std::ranges::min(q.nodes));
  std::erase(result.consumed, first);
  result.stand_at(first);
  return result;
}

// The maker of the scale of a quantizer that is its first reader, or nullptr.
const Node* own_scale(const Matcher& m, const Node& quantize) {
  const Node* scale = scale_maker(m, quantize);
  if (scale == nullptr || m.is_graph_output(scale->out(QuantScale::scale))) return nullptr;
  const auto too_early = [&](ValueId id) { return m.read_before(id, quantize); };
  return std::ranges::any_of(scale->results, too_early) ? nullptr : scale;
}

// The amax of `x` and of other maxima, or of these alone, that nothing but the scale reads; nullptr
// where the scale's operand is made otherwise, and is an operand of the form then.
const Node* own_amax(const Matcher& m, const Node& scale, const Node& quantize) {
  const Node* amax = m.producer(scale.in(QuantScale::amax), OpCode::amax);
  if (amax == nullptr || !m.read_once(amax->out(AmaxOp::amax)) ||
      m.read_before(amax->out(AmaxOp::nonfinite), quantize))
    return nullptr;
  const auto is_known = [&](ValueId id) {
    return id == quantize.in(Quantize::x) || m.type(id).shape.empty();
  };
  const bool fits = std::ssize(amax->operands) <= ops::kMaxMaxima;
  return fits && std::ranges::all_of(amax->operands, is_known) ? amax : nullptr;
}

}  // namespace

std::optional<Form> fold_one_layout(const Matcher& m, const Form& form) {
  if (form.op != OpCode::quantize_both) return std::nullopt;
  const ValueId q = form.results[QuantizeBoth::q], q_t = form.results[QuantizeBoth::q_transposed];
  const auto is_read = [&](ValueId id) { return !m.readers(id).empty() || m.is_graph_output(id); };
  if (is_read(q) == is_read(q_t)) return std::nullopt;
  Form result = form;
  result.op = OpCode::quantize;
  result.results = {is_read(q) ? q : q_t};
  return result;
}

std::optional<Form> fold_groups(const Matcher& m, const Form& form) {
  if (form.op != OpCode::add) return std::nullopt;
  const ValueId sum = form.results.front();
  const Node* cast = m.reader(sum, OpCode::cast);
  const Node* groups = m.reader(sum, OpCode::quantize_groups);
  if (groups == nullptr || !std::get<QuantizeAttrs>(groups->attrs).has_default_scaling() ||
      !m.type(groups->out(QuantizeGroups::q)).in_row_groups())
    return std::nullopt;
  if (cast == nullptr || m.readers(sum).size() != 2 || m.is_graph_output(sum)) {
    m.near_miss("add_quantize", form.last,
                "the sum is not read by one cast and one quantize_groups alone");
    return std::nullopt;
  }
  Form result = form;
  result.op = OpCode::add_quantize;
  result.attrs = groups->attrs;
  result.results = {cast->out(Unary::y), groups->out(QuantizeGroups::q),
                    groups->out(QuantizeGroups::scale)};
  result.consumed.push_back(m.id(*groups));
  result.stand_at(m.id(*cast));
  return result;
}

std::optional<Form> fold_store(const Matcher& m, const Form& form) {
  const OpDef& from = op_def(form.op);
  if (!from.quantized) return std::nullopt;
  const OpDef& to = op_def(*from.quantized);
  const size_t n = std::max<size_t>(from.amax_results, 1);
  const std::span<const ValueId> values(form.results.data(), n);
  if (!std::ranges::all_of(values, [&](ValueId id) { return has_quantizer(m, id); }))
    return std::nullopt;
  Quantizer q;
  const bool is_layer = is_norm_or_activation(form.op);
  if (const auto why = find_quantizer(m, values, q)) {
    if (is_layer) m.near_miss(to.name, form.last, *why);
    return std::nullopt;
  }
  // Gradients are rounded before they are measured, and to the type of what they are made from.
  const Dtype dtype = from.is_gradient ? m.dtype(form.operands.front()) : Dtype::f32;
  if (m.dtype(values.front()) != dtype) return std::nullopt;
  if (to.code == form.op && !is_gemm_store(m, q)) return std::nullopt;
  if (q.scale != nullptr && has_known_statistics(form)) return std::nullopt;
  Form result = with_store(m, form, to, q);
  if (!is_layer && !m.takes(result)) return std::nullopt;
  return result;
}

std::optional<Form> fold_own_scale(const Matcher& m, const Form& form) {
  if (!op_def(form.op).is_quantizer) return std::nullopt;
  const Node& quantize = m.graph().node(form.last);
  const Node* scale = own_scale(m, quantize);
  if (scale == nullptr) return std::nullopt;
  const Node* amax = own_amax(m, *scale, quantize);
  const ValueIds maxima = amax ? amax->operands : ValueIds{scale->in(QuantScale::amax)};
  const ValueId x = form.operands[Quantize::x];
  const Quantizer q{{&quantize}};
  Form result = form;
  change_op(result, OpCode::amax_quantize, AmaxQuantizeAttrs{q.attrs(), q.both(), false});
  make_scale(m, result, *scale, amax);
  result.operands.pop_back();
  for (const ValueId id : maxima) {
    if (id != x)
      result.operands.push_back(id);
    else
      std::get<AmaxQuantizeAttrs>(result.attrs).measures = true;
  }
  return result;
}

}  // namespace octet
