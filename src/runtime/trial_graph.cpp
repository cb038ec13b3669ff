#include "runtime/trial_graph.h"

#include <fmt/format.h>

#include "ir/builder.h"
#include "ir/ops/slots.h"
#include "ir/sharding.h"

namespace octet {
namespace {

class TrialGraph {
 public:
  TrialGraph(const CollectiveKind& kind, int n_ranks)
      : kind_(kind), n_ranks_(n_ranks), builder_(graph_) {
    graph_.name = "self-test";
    graph_.phase = Phase::typed;
  }
  Graph of(const std::vector<int64_t>& sizes) {
    const bool is_norm = is_of_norm(kind_);
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (is_norm) {
        normed_.push_back(input("x", i, kind_.x, sizes[i]));
      } else {
        add(i, sizes[i]);
      }
    }
    if (is_norm || kind_.squares) add_norm();
    graph_.phase = Phase::lowered;
    return std::move(graph_);
  }

 private:
  ValueId input(const char* name, size_t index, Dtype dtype, int64_t n) {
    TensorType type{.dtype = dtype, .shape = {n}};
    if (needs_scale(dtype)) type.granularity = {.kind = Granularity::Kind::tensor};
    return builder_.input(InputKind::parameter, numbered(name, index), type);
  }
  void add_norm() {
    normed_.insert(normed_.begin(), builder_.input(InputKind::batch, "clip", {Dtype::f32, {}}));
    const CollectiveAttrs attrs{.ranks = n_ranks_, .reduction = {}, .shape = {}};
    const auto results = builder_.emit(OpCode::sharded_norm, attrs, normed_);
    for (size_t i = 0; i < results.size(); ++i) builder_.output(numbered("norm", i), results[i]);
  }
  void add(size_t index, int64_t n) {
    const bool gathers = op_def(kind_.op).gathers;
    const int64_t shard = shard_elems(n, n_ranks_);
    const ValueId x = input("x", index, kind_.x, gathers ? shard : n);
    ValueIds operands = {x};
    if (is_sum(kind_)) {
      const int64_t n_into = op_def(kind_.op).scatters ? shard : n;
      operands.resize(3, kNoValue);
      if (kind_.has_into)
        operands[Reduce::into] =
            builder_.input(InputKind::batch, numbered("into", index), {kind_.y, {n_into}});
      if (is_quantized(kind_.x))
        operands[Reduce::scale] =
            builder_.input(InputKind::batch, numbered("scale", index), {Dtype::f32, {}});
    }
    // Made where it is gathered to, as a new weight is.
    ValueId aliased_input = kNoValue;
    if (kind_.in_place) {
      aliased_input = input("w", index, kind_.y, n);
      operands[0] = builder_.unary(OpCode::stop_gradient, x);
    }
    const CollectiveAttrs attrs{.ranks = n_ranks_,
                                .reduction = kind_.reduction,
                                .shape = gathers ? Shape{n} : Shape{},
                                .squares = kind_.squares,
                                .ranks_a_host = kind_.ranks_a_host};
    const auto results = builder_.emit_typed(kind_.op, attrs, operands, {kind_.y});
    builder_.output(numbered("y", index), results[0], aliased_input);
    if (kind_.squares) normed_.push_back(results[Reduce::squares]);
  }

  CollectiveKind kind_;
  int64_t n_ranks_;
  Graph graph_;
  Builder builder_;
  ValueIds normed_;
};

}  // namespace

std::string numbered(const char* name, size_t index) {
  return fmt::format("{}{}", name, index);
}
bool is_of_norm(const CollectiveKind& kind) {
  return kind.op == OpCode::sharded_norm;
}
bool is_max(const CollectiveKind& kind) {
  return op_def(kind.op).sums && kind.reduction == RankReduction::max;
}
bool is_sum(const CollectiveKind& kind) {
  return op_def(kind.op).sums && !is_max(kind);
}

Graph trial_graph(const CollectiveKind& kind, int n_ranks, const std::vector<int64_t>& sizes) {
  return TrialGraph(kind, n_ranks).of(sizes);
}

}  // namespace octet
