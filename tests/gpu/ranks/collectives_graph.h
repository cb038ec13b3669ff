// The collectives of a few ranks, in one graph.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/sharding.h"

namespace octet::test {

// Every kind of collective with every type that it takes; sizes with ragged, empty and whole
// shards.
class CollectivesGraph {
 public:
  CollectivesGraph(int n_ranks, int64_t ranks_a_host, bool has_norm, bool has_in_place)
      : n_ranks_(n_ranks), ranks_a_host_(ranks_a_host), builder_(graph_) {
    graph_.name = "collectives";
    graph_.phase = Phase::typed;
    const ValueId scale = input("scale", Dtype::f32, {});
    for (const int64_t n : {int64_t{1}, int64_t{255}, 256 * int64_t{n_ranks} + 13, int64_t{5000}}) {
      gather(n);
      sum(n, scale);
      maximum(n);
    }
    if (has_in_place) {
      for (const int64_t runs : {1, 5}) gather_in_place(runs * kShardMultiple * n_ranks);
    }
    if (has_norm) norm(has_in_place);
    if (has_norm) norms_of_one_run();
  }
  const Graph& graph() const { return graph_; }

 private:
  static constexpr Dtype kFloats[] = {Dtype::f32, Dtype::bf16, Dtype::fp16};

  ValueId input(const std::string& what, Dtype dtype, const Shape& shape) {
    const std::string name = fmt::format("{} {}", what, graph_.inputs.size());
    TensorType type{.dtype = dtype, .shape = shape};
    if (needs_scale(dtype)) type.granularity = {.kind = Granularity::Kind::tensor};
    return builder_.input(InputKind::batch, name, type);
  }
  void emit(OpCode op, const CollectiveAttrs& attrs, const std::vector<ValueId>& operands,
            Dtype result) {
    for (const ValueId id :
         builder_.emit_typed(op, attrs, operands, std::vector<ResultType>(3, result))) {
      std::string name = fmt::format("{}: {}", graph_.outputs.size(), op_def(op).name);
      for (const ValueId operand : operands)
        name += operand == kNoValue ? " -" : " " + to_string(graph_.type(operand));
      builder_.output(name + " -> " + to_string(graph_.type(id)), id);
    }
  }
  void gather(int64_t n) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::e4m3})
      emit(OpCode::all_gather, {.ranks = n_ranks_, .reduction = {}, .shape = {n}},
           {input("gathered", dtype, {shard_elems(n, n_ranks_)})}, dtype);
  }
  // A shard that is made where it is gathered to, as a new weight is.
  void gather_in_place(int64_t n) {
    for (const Dtype dtype : kFloats) {
      const ValueId aliased_input = input("home", dtype, {n});
      const ValueId x = input("gathered", dtype, {shard_elems(n, n_ranks_)});
      const ValueId shard = builder_.unary(OpCode::stop_gradient, x);
      const CollectiveAttrs attrs{.ranks = n_ranks_, .reduction = {}, .shape = {n}};
      builder_.output(fmt::format("{}: next", graph_.outputs.size()),
                      builder_.emit1(OpCode::all_gather, attrs, {shard}), aliased_input);
    }
  }
  void sum(int64_t n, ValueId scale) {
    const CollectiveAttrs sums{
        .ranks = n_ranks_, .reduction = {}, .shape = {}, .ranks_a_host = ranks_a_host_};
    for (const OpCode op : {OpCode::reduce_scatter, OpCode::all_reduce}) {
      // Operand that sums are added to, common where all ranks have the whole of it.
      const char* const into = op == OpCode::all_reduce ? "common" : "into";
      const Shape result = {op == OpCode::all_reduce ? n : shard_elems(n, n_ranks_)};
      for (const Dtype x : {Dtype::f32, Dtype::bf16, Dtype::fp16, Dtype::e4m3}) {
        for (const Dtype y : kFloats) {
          const ValueId of = input("summed", x, {n});
          const ValueId times = x == Dtype::e4m3 ? scale : kNoValue;
          emit(op, sums, {of, kNoValue, times}, y);
          emit(op, sums, {of, input(into, y, result), times}, y);
        }
      }
    }
  }
  // Squares that a sum adds up of its own result.
  ValueId squares(int64_t n, Dtype dtype) {
    const CollectiveAttrs attrs{.ranks = n_ranks_,
                                .reduction = {},
                                .shape = {},
                                .squares = true,
                                .ranks_a_host = ranks_a_host_};
    const auto results =
        builder_.emit_typed(OpCode::reduce_scatter, attrs, {input("squared", dtype, {n})}, {dtype});
    builder_.output(fmt::format("{}: squared", graph_.outputs.size()), results[0]);
    return results[1];
  }
  void maximum(int64_t n) {
    for (const Dtype dtype : {Dtype::f32, Dtype::boolean})
      emit(OpCode::all_reduce, {.ranks = n_ranks_, .reduction = RankReduction::max, .shape = {}},
           {input("largest", dtype, {n})}, dtype);
  }
  void norm(bool has_sums) {
    std::vector<ValueId> operands = {input("clip", Dtype::f32, {})};
    for (const Dtype dtype : kFloats) operands.push_back(input("squared", dtype, {700}));
    for (const int64_t n : {13, 5000}) {
      for (const Dtype dtype : kFloats) {
        if (has_sums) operands.push_back(squares(n, dtype));
      }
    }
    emit(OpCode::sharded_norm, {.ranks = n_ranks_, .reduction = {}, .shape = {}}, operands,
         Dtype::f32);
  }
  // One behind the other, as a rule has one of each weight: none may begin in what the others still
  // read of the one before.
  void norms_of_one_run() {
    for (int i = 0; i < 12; ++i) {
      emit(OpCode::sharded_norm, {.ranks = n_ranks_, .reduction = {}, .shape = {}},
           {input("clip", Dtype::f32, {}), input("squared", Dtype::f32, {i % 2 == 0 ? 40'000 : 3})},
           Dtype::f32);
    }
  }

  int n_ranks_;
  int64_t ranks_a_host_;
  Graph graph_;
  Builder builder_;
};

}  // namespace octet::test
