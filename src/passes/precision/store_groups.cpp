#include "passes/precision/store_groups.h"

#include <map>

#include "base/error.h"
#include "ir/op_def.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

class GroupStorer {
 public:
  GroupStorer(const Graph& graph, const StoreGroupsOptions& options)
      : rewriter_(graph),
        b_(rewriter_.builder()),
        attrs_{.dtype = options.dtype,
               .target = options.target,
               .group = options.group,
               .transposed = false,
               .pad = 1} {
    for (const Node& node : graph.nodes) {
      if (node.tag.layer < 0) continue;
      for (const StoredPlace place : op_def(node.op).stored)
        stored_.emplace(node.in(place.operand), node.tag);
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
    groups_[old_id] = {results[QuantizeGroups::q], results[QuantizeGroups::scale]};
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
      const auto& [codes, scales] = groups_.at(node.in(place.operand));
      const Dtype wide = Dtype::f32;
      operands[place.operand] =
          b_.emit_typed(OpCode::dequantize, attrs_, {codes, scales}, {&wide, 1})[0];
    }
    rewriter_.set(node.results, b_.emit_typed(node.op, node.attrs, operands,
                                              result_dtypes(rewriter_.from(), node)));
  }

  Rewriter rewriter_;
  Builder& b_;
  QuantizeAttrs attrs_;
  std::map<ValueId, Tag> stored_;                          // old values, by their first reader
  std::map<ValueId, std::pair<ValueId, ValueId>> groups_;  // old value -> codes, scales
};

}  // namespace

Graph store_groups(const Graph& graph, const StoreGroupsOptions& options) {
  CHECK(graph.phase == Phase::typed);
  return GroupStorer(graph, options).run();
}

}  // namespace octet
