#include "backends/cuda/target/chains.h"

#include <optional>

#include "backends/cuda/params/attention.h"
#include "backends/cuda/params/move.h"
#include "backends/cuda/params/rows.h"
#include "backends/cuda/target/bind/binding.h"
#include "ir/ops/rope.h"
#include "plan/views.h"

namespace octet::cuda {
namespace {

// The parameters of a step with this op and kernel.
template <typename Params>
std::optional<Params> params_of(const RowStep& step, OpCode op, KernelId kernel) {
  if (step.view.node.op != op) return std::nullopt;
  const KernelSpec spec = binding_of(*step.row).spec(step.view);
  if (spec.kernel != kernel) return std::nullopt;
  Params p;
  std::memcpy(&p, spec.params.data(), sizeof(Params));
  return p;
}

struct Rotated {
  ValueId x, y, positions;
  RopeParams params;
};
std::optional<Rotated> rotation_of(const RowStep& step, const AttentionParams& to) {
  const auto p = params_of<RopeParams>(step, OpCode::rope, KernelId::rope);
  if (!p || !step.is_inner || p->inverse || p->amax.amax_at != kAbsent ||
      p->head_dim != to.head_dim || p->x.dtype != to.dtype || p->y.dtype != to.dtype ||
      p->rows != to.batch)
    return std::nullopt;
  const Node& node = step.view.node;
  return Rotated{node.in(Rope::x), node.out(Rope::y), node.in(Rope::positions), *p};
}

struct Written {
  ValueId x, cache, positions;
};
std::optional<Written> write_of(const RowStep& step, const AttentionParams& to) {
  const auto p = params_of<CacheWriteParams>(step, OpCode::cache_write, KernelId::cache_write);
  if (!p || p->rows != 1 || p->batch != to.batch || p->capacity != to.kv_len ||
      p->row_bytes != to.kv_heads * to.head_dim * dtype_bytes(to.dtype))
    return std::nullopt;
  const Node& node = step.view.node;
  return Written{node.in(CacheWrite::x), node.out(CacheWrite::next_cache),
                 node.in(CacheWrite::positions)};
}

}  // namespace

bool chain_reads_ahead(const NodeView& view) {
  const Graph& graph = view.graph;
  const Node* rope = graph.producer(view_root(graph, view.node.in(Attention::q)), OpCode::rope);
  return rope != nullptr && graph.producer(view_root(graph, rope->in(Rope::x))) != nullptr &&
         graph.input_of(view_root(graph, view.node.in(Attention::positions))) != nullptr;
}

std::string_view chain_kernel(std::span<const RowStep> steps) {
  if (steps.size() != 5) return {};
  const auto p =
      params_of<AttentionParams>(steps[4], OpCode::attention, KernelId::attention_cached);
  if (!p || p->q_len != 1 || p->bias.is_there || p->key_begins || p->key_ends ||
      p->head_dim % 2 != 0 || p->dtype == Dtype::f32)
    return {};
  const auto first = rotation_of(steps[0], *p), second = rotation_of(steps[1], *p);
  const auto k_write = write_of(steps[2], *p), v_write = write_of(steps[3], *p);
  if (!first || !second || !k_write || !v_write) return {};
  const Node& attention = steps[4].view.node;
  const Graph& graph = steps[0].view.graph;
  const auto are_one = [&](ValueId a, ValueId b) {
    return view_root(graph, a) == view_root(graph, b);
  };
  const bool is_q_first = are_one(first->y, attention.in(Attention::q));
  const Rotated &q = is_q_first ? *first : *second, &k = is_q_first ? *second : *first;
  const ValueId positions = attention.in(Attention::positions);
  const auto at_positions = [&](ValueId id) { return are_one(id, positions); };
  const bool are_linked = are_one(q.y, attention.in(Attention::q)) && are_one(k.y, k_write->x) &&
                          are_one(k_write->cache, attention.in(Attention::k)) &&
                          are_one(v_write->cache, attention.in(Attention::v));
  const auto frequencies = [](const RowStep& step) {
    return rope_frequencies(step.view.attrs<RopeAttrs>());
  };
  const bool is_one_step = at_positions(q.positions) && at_positions(k.positions) &&
                           at_positions(k_write->positions) && at_positions(v_write->positions) &&
                           q.params.heads == p->heads && k.params.heads == p->kv_heads &&
                           frequencies(steps[0]) == frequencies(steps[1]);
  if (!are_linked || !is_one_step) return {};
  return p->slices == 1 ? "cached_step" : "cached_slice_step, join_slices";
}

}  // namespace octet::cuda
