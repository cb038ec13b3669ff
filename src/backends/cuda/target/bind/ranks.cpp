#include "backends/cuda/params/ranks.h"

#include "backends/cuda/target/bind/binding.h"
#include "ir/sharding.h"

namespace octet::cuda {
namespace {

bool has_others(const NodeView& view) {
  return view.attrs<CollectiveAttrs>().ranks > 1;
}

bool is_max(const NodeView& view) {
  return view.attrs<CollectiveAttrs>().reduction == RankReduction::max;
}

bool max_may_join(const NodeView& view) {
  return is_max(view) && view.in(Reduce::x).dtype == Dtype::f32;
}

bool reduces(const NodeView& view) {
  if (!has_others(view)) return false;
  const Dtype x = view.in(Reduce::x).dtype;
  if (is_max(view)) return x == Dtype::f32 || x == Dtype::boolean;
  const bool is_scaled = x == Dtype::e4m3 && view.in(Reduce::scale).dtype == Dtype::f32;
  return (is_high_precision(x) || is_scaled) && is_high_precision(view.out(Reduce::y).dtype);
}

bool norm_applies(const NodeView& view) {
  for (size_t i = 1; i < view.node.operands.size(); ++i) {
    const Dtype dtype = view.in(i).dtype;
    if (!is_high_precision(dtype) && dtype != Dtype::u32) return false;
  }
  return true;
}

// Scratch of one rank alone: a sum that others do not read.
int64_t sharded_norm_scratch(const NodeView& view) {
  return view.attrs<CollectiveAttrs>().ranks == 1 ? kSumBytes : 0;
}

// The other ranks' parts of this rank's sum. In two levels: those of the host, of what this rank
// adds up for each host, and in their place the other hosts' sums; then this host's.
int64_t sum_scratch(const NodeView& view) {
  const TensorType& x = view.in(Reduce::x);
  const auto& a = view.attrs<CollectiveAttrs>();
  const int64_t shard = shard_elems(x.n_elems(), a.ranks);
  if (a.ranks_a_host == 0) return bytes_of(x.dtype, (a.ranks - 1) * shard);
  const int64_t hosts = a.ranks / a.ranks_a_host;
  const int64_t of_peers = bytes_of(x.dtype, (a.ranks - hosts) * shard);
  return std::max(of_peers, bytes_of(Dtype::f32, (hosts - 1) * shard)) +
         bytes_of(Dtype::f32, hosts * shard);
}

// Parameters that nodes of all kinds have of the tensor that is cut.
RankParams params_of(const NodeView& view, int64_t ranks, const TensorType& whole) {
  const TensorType& x = view.in(Unary::x);
  const TensorType& y = view.out(Unary::y);
  return {.ranks = ranks,
          .n = whole.n_elems(),
          .shard = shard_elems(whole.n_elems(), ranks),
          .count = y.n_elems(),
          .x = x.dtype,
          .y = y.dtype};
}

KernelSpec take_shard_spec(const NodeView& view) {
  const auto& a = view.attrs<ShardAttrs>();
  RankParams p = params_of(view, a.ranks, view.in(Unary::x));
  p.first = std::min(p.n, a.rank * p.shard);
  return make_spec(KernelId::take_shard, p);
}

KernelSpec all_gather_spec(const NodeView& view) {
  const auto& a = view.attrs<CollectiveAttrs>();
  RankParams p = params_of(view, a.ranks, view.out(Unary::y));
  p.in_place = a.in_place;
  return make_spec(KernelId::all_gather, p);
}

// `first` of a reduce_scatter is this rank's, which the module knows: -1 stands for it.
KernelSpec sum_spec(const NodeView& view) {
  RankParams p = params_of(view, view.attrs<CollectiveAttrs>().ranks, view.in(Reduce::x));
  if (is_max(view)) return make_spec(KernelId::max_of_ranks, p);
  p.into = view.has(Reduce::into);
  p.squares = view.attrs<CollectiveAttrs>().squares;
  p.ranks_a_host = view.attrs<CollectiveAttrs>().ranks_a_host;
  if (op_def(view.node.op).scatters) p.first = -1;
  return make_spec(KernelId::reduce_ranks, p);
}

KernelSpec sharded_norm_spec(const NodeView& view) {
  const ShardedNormParams params{.ranks = view.attrs<CollectiveAttrs>().ranks,
                                 .n_gradients = std::ssize(view.node.operands) - 1};
  return make_spec(KernelId::sharded_norm, params, list_operands(view, 1));
}

const Binding kRanksBindings[] = {
    {{OpCode::take_shard, "copy", always}, take_shard_spec},
    {{OpCode::all_gather, "peers", has_others}, all_gather_spec},
    {{.op = OpCode::reduce_scatter,
      .name = "peers",
      .applies = reduces,
      .scratch = sum_scratch,
      .facts = {.has_two_phases = true}},
     sum_spec},
    {{.op = OpCode::all_reduce, .name = "peers", .applies = reduces, .may_join = max_may_join},
     sum_spec},
    {{OpCode::sharded_norm, "peers", norm_applies, sharded_norm_scratch}, sharded_norm_spec},
};

}  // namespace

std::span<const Binding> rank_bindings() {
  return kRanksBindings;
}

}  // namespace octet::cuda
