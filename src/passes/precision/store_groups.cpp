#include "passes/precision/store_groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/op_def.h"
#include "passes/precision/policy.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

class GroupStorer {
 public:
  GroupStorer(const Graph& graph, const StoreGroupsOptions& options)
      : options_(options),
        rewriter_(graph),
        b_(rewriter_.builder()),
        attrs_{.dtype = options.dtype,
               .target = options.target,
               .group = options.group,
               .transposed = false,
               .pad = 1} {
    for (const Node& node : graph.nodes) {
      if (node.tag.layer < 0) continue;
      for (const StoredPlace place : op_def(node.op).stored) {
        stored_.emplace(node.in(place.operand), node.tag);
        if (std::holds_alternative<NormAttrs>(node.attrs))
          normalized_.insert(node.in(place.operand));
      }
    }
  }

  Graph run() {
    for (const GraphInput& input : rewriter_.from().inputs) {
      if (const auto it = stored_.find(input.value); it != stored_.end())
        store(input.value, rewriter_.map(input.value), it->second);
    }
    for (const Node& node : rewriter_.from().nodes) {
      const bool residual = node.op == OpCode::add && stored_.count(node.out(Binary::y)) > 0;
      if (residual) {
        wide_sum(node);
      } else if (const int* log2 = result_scale(node)) {
        store_result(node, *log2);
      } else if (node.tag.layer >= 0 && !op_def(node.op).stored.empty()) {
        read_dequantized(node);
      } else {
        rewriter_.copy(node);
      }
      for (const ValueId id : node.results) {
        if (id != kNoValue && stored_.count(id) > 0 && groups_.count(id) == 0)
          store(id, rewriter_.map(id), node.tag);
      }
    }
    return rewriter_.finish();
  }

 private:
  void store(ValueId old_id, ValueId value, const Tag& tag) {
    b_.tag = tag;
    const auto results = b_.emit(OpCode::quantize_groups, attrs_, {value});
    groups_[old_id] = {results[QuantizeGroups::q], results[QuantizeGroups::scale], attrs_};
  }

  // Of a linear whose result has one scale.
  const int* result_scale(const Node& node) const {
    const auto* gemm = std::get_if<GemmAttrs>(&node.attrs);
    if (gemm == nullptr || gemm->role != GemmRole::forward) return nullptr;
    const ValueId y = node.out(Gemm::y);
    if (stored_.count(y) == 0 || normalized_.count(y) > 0) return nullptr;
    const auto scale = options_.result_scales.find(linear_name(node));
    return scale == options_.result_scales.end() ? nullptr : &scale->second;
  }

  // Codes of the f32 product.
  void store_result(const Node& node, int log2) {
    const Dtype wide = Dtype::f32, of_scales = Dtype::bf16;
    b_.tag = node.tag;
    const ValueId y =
        b_.emit_typed(node.op, node.attrs, rewriter_.map(node.operands), {&wide, 1})[0];
    auto& [scale, scales] = constants_.try_emplace(log2, kNoValue, kNoValue).first->second;
    if (scale == kNoValue) {
      const double value = std::ldexp(1.0, log2);
      scale = b_.fill({}, value);
      const FillAttrs one{.shape = kOneScale, .value = value};
      scales = b_.emit_typed(OpCode::fill, one, {}, {&of_scales, 1})[0];
    }
    QuantizeAttrs attrs{.dtype = attrs_.dtype, .target = attrs_.target};
    const ValueId q = b_.emit1(OpCode::quantize, attrs, {y, scale});
    attrs.rows = std::max<int64_t>(1, b_.shape(q)[0]);
    attrs.group = b_.shape(q)[1];
    groups_[node.out(Gemm::y)] = {q, scales, attrs};
    rewriter_.set(node.results, {y});
  }

  void wide_sum(const Node& node) {
    b_.tag = node.tag;
    const Dtype wide = Dtype::f32, narrow = rewriter_.from().type(node.out(Binary::y)).dtype;
    const ValueId sum =
        b_.emit_typed(OpCode::add, NoAttrs{}, rewriter_.map(node.operands), {&wide, 1})[0];
    rewriter_.set(node.results, b_.emit_typed(OpCode::cast, NoAttrs{}, {sum}, {&narrow, 1}));
    store(node.out(Binary::y), sum, node.tag);
  }

  void read_dequantized(const Node& node) {
    std::vector<ValueId> operands = rewriter_.map(node.operands);
    b_.tag = node.tag;
    for (const StoredPlace place : op_def(node.op).stored) {
      const auto& [codes, scales, attrs] = groups_.at(node.in(place.operand));
      const Dtype wide = Dtype::f32;
      operands[place.operand] =
          b_.emit_typed(OpCode::dequantize, attrs, {codes, scales}, {&wide, 1})[0];
    }
    rewriter_.set(node.results, b_.emit_typed(node.op, node.attrs, operands,
                                              result_dtypes(rewriter_.from(), node)));
  }

  struct Stored {
    ValueId codes, scales;
    QuantizeAttrs attrs;
  };

  const StoreGroupsOptions& options_;
  Rewriter rewriter_;
  Builder& b_;
  QuantizeAttrs attrs_;
  std::map<ValueId, Tag> stored_;                         // old values, by their first reader
  std::set<ValueId> normalized_;                          // those that a norm reads
  std::map<ValueId, Stored> groups_;                      // by old value
  std::map<int, std::pair<ValueId, ValueId>> constants_;  // by log2: f32[], and bf16 as scales lie
};

}  // namespace

Graph store_groups(const Graph& graph, const StoreGroupsOptions& options) {
  CHECK(graph.phase == Phase::typed);
  return GroupStorer(graph, options).run();
}

}  // namespace octet
