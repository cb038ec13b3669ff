#include <cmath>
#include <cstring>

#include "backends/cpu/bind/launch.h"
#include "backends/cpu/ranks/ranks.h"
#include "base/bytes.h"
#include "base/error.h"
#include "ir/sharding.h"

namespace octet::cpu {
namespace {

int64_t ranks_of(const NodeView& view) {
  const auto* shard = std::get_if<ShardAttrs>(&view.node.attrs);
  return shard != nullptr ? shard->ranks : view.attrs<CollectiveAttrs>().ranks;
}

// A program for D ranks runs among D.
Group* group_of(const NodeView& view, const Context& context) {
  CHECK(ranks_of(view) == (context.group == nullptr ? 1 : context.group->size()) ||
        ranks_of(view) == 1);
  return ranks_of(view) == 1 ? nullptr : context.group;
}

Cut cut_of(const NodeView& view, const Context& context, const TensorType& whole) {
  const int64_t n = whole.n_elems();
  return {.group = group_of(view, context),
          .n = n,
          .shard = shard_elems(n, ranks_of(view)),
          .a_host = view.attrs<CollectiveAttrs>().ranks_a_host};
}

LaunchFn prepare_take_shard(const NodeView& view, Context&) {
  const auto& attrs = view.attrs<ShardAttrs>();
  const TensorType& x = view.in(Unary::x);
  const int64_t width = bytes_of(x.dtype, 1), shard = view.out(Unary::y).n_elems();
  const ElementRange own = shard_range(x.n_elems(), shard, attrs.rank);
  return [=](const LaunchArgs& args) {
    const int64_t n_bytes = own.count * width;
    std::byte* const y = args.results[Unary::y];
    copy_bytes(y, args.operands[Unary::x] + own.first * width, n_bytes);
    std::memset(y + n_bytes, 0, static_cast<size_t>(shard * width - n_bytes));
  };
}

// Shards of all ranks, where the result has no room for their padding.
int64_t gather_scratch(const NodeView& view) {
  const int64_t n_bytes = view.in(Unary::x).n_bytes() * ranks_of(view);
  return n_bytes == view.out(Unary::y).n_bytes() ? 0 : n_bytes;
}

LaunchFn prepare_all_gather(const NodeView& view, Context& context) {
  const TensorType& y = view.out(Unary::y);
  return [cut = cut_of(view, context, y), width = bytes_of(y.dtype, 1)](const LaunchArgs& args) {
    all_gather(cut, width, args.operands[Unary::x], args.results[Unary::y], args.scratch);
  };
}

int64_t reduce_scratch_bytes(const NodeView& view) {
  const TensorType& x = view.in(Reduce::x);
  return bytes_of(x.dtype, 2 * ranks_of(view) * shard_elems(x.n_elems(), ranks_of(view)));
}

Summand summand(const Call& call) {
  const auto* scale = call.data<float>(Reduce::scale);
  return {call.in(Reduce::x), scale == nullptr ? 1.0f : *scale};
}

static_assert(sizeof(ExactSum::Words) == kSquareWords * sizeof(uint32_t));

// All in one row; the others stay empty.
void write_squares(const ExactSum& sum, std::byte* squares, int64_t n_bytes) {
  std::memset(squares, 0, static_cast<size_t>(n_bytes));
  std::memcpy(squares, sum.words().data(), sizeof(ExactSum::Words));
}
ExactSum read_squares(const std::byte* squares, int64_t n_rows) {
  ExactSum sum;
  for (int64_t row = 0; row < n_rows; ++row) {
    ExactSum::Words words;
    std::memcpy(words.data(), squares + row * std::ssize(words) * 8, sizeof(words));
    sum.add(words);
  }
  return sum;
}

LaunchFn prepare_reduce_scatter(const NodeView& view, Context& context) {
  const int64_t n_squares = view.gives(Reduce::squares) ? view.out(Reduce::squares).n_bytes() : 0;
  return launcher(view, context,
                  [cut = cut_of(view, context, view.in(Reduce::x)), n_squares](const Call& call) {
                    const Out y = call.out(Reduce::y);
                    reduce_scatter(cut, summand(call), call.in(Reduce::into), y, call.args.scratch);
                    if (n_squares > 0)
                      write_squares(square_sum({y.data, y.dtype}, cut.shard, call.pool),
                                    call.args.results[Reduce::squares], n_squares);
                  });
}

bool is_sum(const NodeView& view) {
  return view.attrs<CollectiveAttrs>().reduction == RankReduction::sum;
}

// Scratch of a sum: what reduce_scatter wants, its result, and the results of all ranks.
int64_t all_reduce_scratch(const NodeView& view) {
  if (!is_sum(view)) return 0;
  const int64_t shard = shard_elems(view.in(Reduce::x).n_elems(), ranks_of(view));
  return reduce_scratch_bytes(view) +
         bytes_of(view.out(Reduce::y).dtype, (2 + ranks_of(view)) * shard);
}

// `into` is cut as x is; its shard is read in place where it is whole, else from a padded copy.
LaunchFn prepare_all_reduce_sum(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [cut = cut_of(view, context, view.in(Reduce::x)),
                   before = reduce_scratch_bytes(view)](const Call& call) {
                    const Out y = call.out(Reduce::y);
                    const int64_t width = bytes_of(y.dtype, 1), bytes = cut.shard * width;
                    std::byte* const own = call.args.scratch + before;
                    In into = call.in(Reduce::into);
                    if (into) {
                      CHECK(into.dtype == y.dtype);
                      const ElementRange range = shard_range(cut.n, cut.shard, cut.rank());
                      std::memset(own + bytes, 0, static_cast<size_t>(bytes));
                      if (range.count > 0)
                        std::memcpy(own + bytes, offset(into, range.first).data,
                                    static_cast<size_t>(range.count * width));
                      into.data = own + bytes;
                    }
                    reduce_scatter(cut, summand(call), into, {own, y.dtype}, call.args.scratch);
                    all_gather(cut, width, own, static_cast<std::byte*>(y.data), own + 2 * bytes);
                  });
}

LaunchFn prepare_all_reduce_max(const NodeView& view, Context& context) {
  const TensorType& x = view.in(Reduce::x);
  CHECK(x.dtype == Dtype::boolean || x.dtype == Dtype::f32);
  return [group = group_of(view, context), type = x](const LaunchArgs& args) {
    std::byte* const y = args.results[Reduce::y];
    const std::byte* const from = args.operands[Reduce::x];
    copy_bytes(y, from, type.n_bytes());
    const auto n = static_cast<size_t>(type.n_elems());
    if (type.dtype == Dtype::boolean)
      return max_over(group, std::span(reinterpret_cast<uint8_t*>(y), n));
    max_over(group, std::span(reinterpret_cast<float*>(y), n));
  };
}

LaunchFn prepare_all_reduce(const NodeView& view, Context& context) {
  return is_sum(view) ? prepare_all_reduce_sum(view, context)
                      : prepare_all_reduce_max(view, context);
}

LaunchFn prepare_sharded_norm(const NodeView& view, Context& context) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < view.node.operands.size(); ++i) sizes.push_back(view.in(i).n_elems());
  return launcher(view, context, [sizes, group = group_of(view, context)](const Call& call) {
    ExactSum own;
    for (size_t i = 1; i < sizes.size(); ++i) {
      const bool is_summed = call.types.in[i] == Dtype::u32;
      const ExactSum sum = is_summed ? read_squares(call.args.operands[i], sizes[i] / kSquareWords)
                                     : square_sum(call.in(i), sizes[i], call.pool);
      own.add(sum.words());
    }
    const ExactSum total = sum_over(group, own);
    write_norm(call, std::sqrt(total.value()), total.finite());
  });
}

const Binding kRanksBindings[] = {
    {{OpCode::take_shard, "ranks", always}, prepare_take_shard},
    {{OpCode::all_gather, "ranks", always, gather_scratch}, prepare_all_gather},
    {{OpCode::reduce_scatter, "ranks", always, reduce_scratch_bytes}, prepare_reduce_scatter},
    {{OpCode::all_reduce, "ranks", always, all_reduce_scratch}, prepare_all_reduce},
    {{OpCode::sharded_norm, "ranks", always}, prepare_sharded_norm},
};

}  // namespace

std::span<const Binding> rank_bindings() {
  return kRanksBindings;
}

}  // namespace octet::cpu
