#include "passes/scalify/unit_scaling.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ir/op_def.h"
#include "passes/rewrite/rewrite.h"

namespace octet {

namespace unit_scaling {

double between(double share, double low, double high) {
  return std::pow(low, 1 - share) * std::pow(high, share);
}

double gated_factor() {
  return between(0.5, 2, std::sqrt(2.0));
}

double attention_factor(AttentionMask mask, int64_t keys, int64_t head_dim) {
  if (keys <= 1) return 1;
  const auto n = static_cast<double>(keys);
  const double means = mask == AttentionMask::causal ? std::log(n) : 1;  // sum of 1 / t, nearly
  return 1 / between(1 / (1 + 4 * static_cast<double>(head_dim)), std::sqrt(means / n), 1);
}

double logits_factor(int64_t vocab) {
  const auto v = static_cast<double>(vocab);
  return v / std::sqrt(v - 1);
}

double tau(int64_t i, int64_t n) {
  return 1 / std::sqrt(static_cast<double>(n) / 2 + static_cast<double>(i));
}

}  // namespace unit_scaling

namespace {

[[noreturn]] void refuse(const Node& node, std::string_view why) {
  throw Error(ErrorCode::invalid_argument,
              "[unit_scaling] expected a decoder of pre-norm layers, each attention and a gated "
              "SiLU MLP, without biases and with a head of its own (llama, mistral and their like, "
              "model.tied false), got {} {}: {}, '{}'",
              op_def(node.op).name, why, layer_text(node.tag), node.tag.origin);
}

// Terms of a residual sum: x, and what a branch makes of x.
struct Residual {
  ValueId skip = kNoValue, branch = kNoValue;
  bool has_attention = false;
};

// Structure of the graph that the factors depend on besides a node itself.
class Structure {
 public:
  explicit Structure(const Graph& graph) : graph_(graph), readers_(uses(graph)) {
    for (const Node& node : graph.nodes) {
      if (node.tag.role != Role::forward) continue;
      if (node.op == OpCode::add) note_residual(node);
      if (node.op == OpCode::gemm) note_linear(node);
    }
    if (residuals_.empty() || residuals_.size() % 2 != 0) {
      throw Error(ErrorCode::invalid_argument,
                  "[unit_scaling] expected two residual sums a layer, got {} of the model",
                  residuals_.size());
    }
  }

  int64_t n_layers() const { return std::ssize(residuals_) / 2; }
  // The place of a sum among the residual ones; nothing of another.
  std::optional<int64_t> place(const Node& add) const {
    const auto at = place_of_sum_.find(graph_.id(add));
    return at == place_of_sum_.end() ? std::nullopt : std::optional(at->second);
  }
  // The place of the sum whose skipped value's gradient this is: of the branch's and of the sum's.
  std::optional<std::pair<int64_t, size_t>> place_of_gradient(const Node& add) const {
    for (size_t slot = 0; slot < 2; ++slot) {
      const Node* norm = graph_.producer(add.in(slot));
      if (norm == nullptr || !is_norm_gradient(norm->op)) continue;
      const auto at = place_of_skip_.find(norm->in(RmsNormGrad::x));
      if (at != place_of_skip_.end()) return std::pair(at->second, slot);
    }
    return std::nullopt;
  }
  const Residual& residual(int64_t place) const { return residuals_[static_cast<size_t>(place)]; }
  // A layer's linear beside a gated activation: its gradient's factor is its own.
  bool is_free(ValueId weight) const { return free_weights_.contains(weight); }
  bool is_head(ValueId weight) const { return weight == head_; }

 private:
  // True if `from` depends on `to`, and attention lies between; nothing where it does not depend.
  std::optional<bool> path(ValueId from, ValueId to) const {
    std::vector<ValueId> open = {from};
    std::set<ValueId> seen;
    bool reaches = false, has_attention = false;
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      reaches = reaches || id == to;
      const Node* node = id == to ? nullptr : graph_.producer(id);
      if (node == nullptr || id < to || !seen.insert(id).second) continue;
      has_attention = has_attention || node->op == OpCode::attention;
      for (const ValueId operand : node->operands)
        if (operand != kNoValue) open.push_back(operand);
    }
    return reaches ? std::optional(has_attention) : std::nullopt;
  }

  void note_residual(const Node& add) {
    const int64_t place = std::ssize(residuals_);
    for (const auto& [skip, branch] : {std::pair(add.in(Binary::a), add.in(Binary::b)),
                                       std::pair(add.in(Binary::b), add.in(Binary::a))}) {
      const std::optional<bool> has_attention = path(branch, skip);
      if (!has_attention) continue;
      if (*has_attention != (place % 2 == 0))
        refuse(add, *has_attention ? "of attention behind attention" : "without attention");
      check_begin(add, skip);
      residuals_.push_back({.skip = skip, .branch = branch, .has_attention = *has_attention});
      place_of_sum_[graph_.id(add)] = place;
      place_of_skip_[skip] = place;
      return;
    }
    refuse(add, "of what is no layer's input and output");
  }

  // A branch begins with one norm.
  void check_begin(const Node& add, ValueId skip) const {
    int n_norms = 0;
    for (const NodeId n : readers_[skip]) {
      const Node& reader = graph_.node(n);
      if (reader.tag.role != Role::forward || &reader == &add) continue;
      if (!is_norm(reader.op)) refuse(reader, "beside a norm at a layer's begin");
      ++n_norms;
    }
    if (n_norms != 1) refuse(add, "behind a layer that begins with no norm");
  }

  void note_linear(const Node& gemm) {
    const ValueId weight = gemm.in(Gemm::b);
    const bool is_linear = linear_role(gemm) == GemmRole::forward &&
                           std::get<GemmAttrs>(gemm.attrs).trans_b &&
                           graph_.input_of(weight) != nullptr;
    if (!is_linear) refuse(gemm, "whose weight is no matrix [outputs, inputs]");
    for (const NodeId n : readers_[weight])
      if (graph_.node(n).op == OpCode::embedding) refuse(gemm, "of the embedding's table");
    if (gemm.tag.layer < 0) {
      if (head_ != kNoValue) refuse(gemm, "beside another outside of the layers");
      head_ = weight;
      return;
    }
    const auto& readers = readers_[gemm.out(Gemm::y)];
    const bool is_gated = std::ranges::any_of(
        readers, [&](NodeId n) { return graph_.node(n).op == OpCode::gated_act; });
    if (is_gated || graph_.producer(gemm.in(Gemm::a), OpCode::gated_act) != nullptr)
      free_weights_.insert(weight);
  }

  const Graph& graph_;
  ById<std::vector<NodeId>> readers_;
  std::vector<Residual> residuals_;
  std::map<NodeId, int64_t> place_of_sum_;
  std::map<ValueId, int64_t> place_of_skip_;
  std::set<ValueId> free_weights_;
  ValueId head_ = kNoValue;
};

double inverse_root(int64_t n) {
  return 1 / std::sqrt(static_cast<double>(n));
}

class UnitScaler {
 public:
  UnitScaler(const Graph& graph, int64_t seq)
      : from_(graph), structure_(graph), rewriter_(graph), b_(rewriter_.builder()), seq_(seq) {}

  Graph run() {
    for (const Node& node : from_.nodes) {
      b_.tag = node.tag;
      take(node);
    }
    return rewriter_.finish();
  }

 private:
  void take(const Node& node) {
    switch (op_def(node.op).unit_scale) {
      case UnitScale::kept:
        rewriter_.copy(node);
        return;
      case UnitScale::gemm:
        return take_gemm(node);
      case UnitScale::sum:
        return take_sum(node);
      case UnitScale::gate:
        return take_gate(node);
      case UnitScale::attention:
        return op_def(node.op).is_gradient ? take_attention_grad(node) : take_attention(node);
      case UnitScale::norm:
        return take_norm_grad(node);
      case UnitScale::table:
        return take_table_grad(node);
      case UnitScale::loss:
        return take_loss_grad(node);
      case UnitScale::none:
        if (!makes_numbers(node)) refuse(node, "that has no factors");
        rewriter_.copy(node);
    }
  }

  // Such as what becomes of a loss scale.
  bool makes_numbers(const Node& node) const {
    return std::ranges::all_of(
        node.results, [&](ValueId id) { return id == kNoValue || from_.type(id).shape.empty(); });
  }

  ValueId filled(double value) {
    const auto [at, is_new] = fills_.try_emplace(value, kNoValue);
    if (is_new) at->second = b_.fill({}, value);
    return at->second;
  }

  ValueId scaled(ValueId x, double factor) { return b_.rescale(x, filled(factor)); }

  // An op that is linear in this operand: times the factor.
  void take_scaled(const Node& node, size_t slot, double factor) {
    ValueIds operands = rewriter_.map(node.operands);
    operands[slot] = scaled(operands[slot], factor);
    rewriter_.set(node.results, b_.emit(node.op, node.attrs, std::move(operands)));
  }

  void take_gate(const Node& node) {
    const double factor = unit_scaling::gated_factor();
    if (op_def(node.op).is_gradient) return take_scaled(node, GatedActGrad::dy, factor);
    rewriter_.set(node.results[0], scaled(rewriter_.copy(node)[0], factor));
  }

  void take_table_grad(const Node& node) {
    const auto rows = std::get<ScatterAddAttrs>(node.attrs).rows;
    const double tokens = static_cast<double>(from_.type(node.in(LookupGrad::dy)).shape[0]);
    take_scaled(node, LookupGrad::dy, std::sqrt(static_cast<double>(rows) / tokens));
  }

  double gemm_factor(const Node& gemm) const {
    const auto& attrs = std::get<GemmAttrs>(gemm.attrs);
    const Shape& a = from_.type(gemm.in(Gemm::a)).shape;
    const Shape& y = from_.type(gemm.out(Gemm::y)).shape;
    const int64_t summed = a[attrs.trans_a ? 0 : 1];
    const ValueId weight = gemm.in(Gemm::b);
    switch (attrs.role) {
      case GemmRole::forward:
        return structure_.is_head(weight) ? 1 / static_cast<double>(summed) : inverse_root(summed);
      case GemmRole::dgrad: {
        const bool is_own = structure_.is_head(weight) || structure_.is_free(weight);
        return inverse_root(is_own ? summed : y[1]);
      }
      case GemmRole::wgrad:
        return inverse_root(summed);
      case GemmRole::other:
        break;
    }
    refuse(gemm, "of no linear");
  }

  void take_gemm(const Node& gemm) {
    CHECK(gemm.operands.size() == 2);  // nothing is folded into it yet
    const double factor = gemm_factor(gemm);
    const ValueIds operands = {rewriter_.map(gemm.in(Gemm::a)), rewriter_.map(gemm.in(Gemm::b)),
                               kNoValue, filled(factor)};
    rewriter_.set(gemm.results, b_.emit(OpCode::gemm, gemm.attrs, operands));
  }

  // a and b of tau and 1, of a sum of squares 1.
  void take_weighted(const Node& add, int64_t place, size_t branch) {
    const double tau = unit_scaling::tau(place, 2 * structure_.n_layers());
    const double of_skip = 1 / std::sqrt(1 + tau * tau);
    ValueIds operands = rewriter_.map(add.operands);
    operands.push_back(filled(branch == 0 ? tau * of_skip : of_skip));
    operands.push_back(filled(branch == 1 ? tau * of_skip : of_skip));
    rewriter_.set(add.results, b_.emit(OpCode::axpby, NoAttrs{}, std::move(operands)));
  }

  void take_sum(const Node& add) {
    if (const auto place = structure_.place(add)) {
      const size_t branch = structure_.residual(*place).branch == add.in(Binary::b) ? 1 : 0;
      return take_weighted(add, *place, branch);
    }
    if (const auto gradient = structure_.place_of_gradient(add))
      return take_weighted(add, gradient->first, gradient->second);
    rewriter_.copy(add);
  }

  // Products are divided by the width of a head, not by its root: at first all weights are equal.
  AttentionAttrs attention_attrs(const Node& node) const {
    auto attrs = std::get<AttentionAttrs>(node.attrs);
    if (attrs.window != 0) refuse(node, "with a window");
    if (attrs.softcap != 0) refuse(node, "with a softcap");
    if (attrs.keys != AttentionKeys::appended) refuse(node, "to another sequence");
    attrs.scale = 1 / static_cast<double>(attrs.head_dim);
    return attrs;
  }
  double attention_factor(const AttentionAttrs& attrs) const {
    return unit_scaling::attention_factor(attrs.mask, seq_ > 0 ? seq_ : attrs.kv_len,
                                          attrs.head_dim);
  }

  // Its gradient reads the result without the factor.
  void take_attention(const Node& node) {
    if (node.in(Attention::bias) != kNoValue) refuse(node, "with a bias");
    const AttentionAttrs attrs = attention_attrs(node);
    const ValueIds results = b_.emit(node.op, attrs, rewriter_.map(node.operands));
    rewriter_.set(node.results, results);
    const ValueId o = node.out(Attention::o);
    unscaled_[o] = results[Attention::o];
    rewriter_.set(o, scaled(results[Attention::o], attention_factor(attrs)));
  }

  void take_attention_grad(const Node& node) {
    const AttentionAttrs attrs = attention_attrs(node);
    ValueIds operands = rewriter_.map(node.operands);
    operands[AttentionGrad::o] = unscaled_.at(node.in(AttentionGrad::o));
    ValueId& dout = operands[AttentionGrad::dout];
    dout = scaled(dout, attention_factor(attrs));
    rewriter_.set(node.results, b_.emit(node.op, attrs, std::move(operands)));
  }

  // Gradients of its weight are sums over its rows.
  void take_norm_grad(const Node& node) {
    rewriter_.copy(node);
    const Shape& x = from_.type(node.in(RmsNormGrad::x)).shape;
    for (const size_t slot : {size_t{1}, size_t{2}}) {  // dweight, dbias
      const bool is_sum = node.op == OpCode::layer_norm_grad || slot == RmsNormGrad::dweight;
      const ValueId sum = node.out(slot);
      if (is_sum && sum != kNoValue)
        rewriter_.set(sum, scaled(rewriter_.map(sum), inverse_root(x[0])));
    }
  }

  // Gradient of the mean over the step's labels, as if these rows were all of it.
  void take_loss_grad(const Node& node) {
    const Shape& logits = from_.type(node.in(CrossEntropyGrad::logits)).shape;
    ValueIds operands = rewriter_.map(node.operands);
    ValueId& inv_n = operands[CrossEntropyGrad::inv_n];
    const double factor = static_cast<double>(logits[0]) * unit_scaling::logits_factor(logits[1]);
    inv_n = b_.mul(inv_n, filled(factor));
    rewriter_.set(node.results, b_.emit(node.op, node.attrs, std::move(operands)));
  }

  const Graph& from_;
  Structure structure_;
  Rewriter rewriter_;
  Builder& b_;
  int64_t seq_;
  std::map<double, ValueId> fills_;
  std::map<ValueId, ValueId> unscaled_;  // results of attention, by those of the old graph
};

}  // namespace

Graph unit_scale(const Graph& logical, int64_t seq) {
  CHECK(logical.phase == Phase::logical);
  return UnitScaler(logical, seq).run();
}

std::map<std::string, double> unit_learning_rates(const Graph& forward) {
  unit_scale(forward);  // throws
  const Structure structure(forward);
  std::map<std::string, double> rates;
  for (const Node& node : forward.nodes) {
    if (node.tag.role != Role::forward) continue;
    for (const ValueId id : node.operands) {
      const GraphInput* input = id == kNoValue ? nullptr : forward.input_of(id);
      if (input == nullptr || input->kind != InputKind::parameter) continue;
      const Shape& shape = forward.type(id).shape;
      const bool is_scaled = shape.size() == 2 && !structure.is_head(id);
      const double of_width = is_scaled ? inverse_root(shape[1]) : 1;
      rates[input->name] =
          of_width * (node.tag.layer >= 0 ? inverse_root(structure.n_layers()) : 1);
    }
  }
  return rates;
}

}  // namespace octet
