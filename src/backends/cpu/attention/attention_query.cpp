#include "backends/cpu/attention/attention_query.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace octet::cpu {
namespace {

int64_t aligned(int64_t bytes) {
  return round_up(bytes, 64);
}

// The library's order of k products, in one run of a chain that is here.
std::optional<DotChain> chain_of(Dtype compute, int64_t k) {
  const DotOrder order = compute == Dtype::bf16 ? library_dot_order(k)
                                                : DotOrder{DotChain::steps, library_sum_order(k)};
  const bool is_here =
      order.runs.is_known() && order.runs.next(k) == k && order.chain != DotChain::tiles;
  return is_here ? std::optional(order.chain) : std::nullopt;
}

}  // namespace

bool AttentionQuery::applies(const AttentionShape& shape) {
  if (shape.spec.q_len != 1 || row_sums() != RowSums::same) return false;
  const auto scores = chain_of(shape.compute, shape.depth);
  return scores && scores == chain_of(shape.compute, shape.k_block);
}

// Heads of a group read their keys together where that leaves no thread without work.
AttentionQuery::AttentionQuery(const AttentionShape& shape, int n_threads)
    : shape_(shape),
      chain_(*chain_of(shape.compute, shape.depth)),
      heads_at_once_(shape.pairs() >= n_threads ? shape.group() : 1),
      n_threads_(n_threads) {}

int64_t AttentionQuery::thread_bytes() const {
  const int64_t scores = heads_at_once_ * row_keys();
  return aligned(heads_at_once_ * shape_.depth * 4) + aligned(scores * 4) +
         2 * aligned(shape_.spec.head_size * 4) + aligned(heads_at_once_ * kRowColumns * 4) +
         aligned(bytes_of(shape_.compute, scores)) +
         aligned(bytes_of(shape_.spec.dtype, kRowColumns * shape_.depth));
}

size_t AttentionQuery::scratch_bytes() const {
  return static_cast<size_t>(n_threads_ * thread_bytes());
}

AttentionQuery::Own AttentionQuery::own(const AttentionArgs& args, int thread) const {
  char* at = static_cast<char*>(args.scratch) + thread * thread_bytes();
  const auto floats = [&](int64_t n) {
    auto* const begin = reinterpret_cast<float*>(at);
    at += aligned(n * 4);
    return begin;
  };
  Own own{};
  own.q = floats(heads_at_once_ * shape_.depth);
  own.scores = floats(heads_at_once_ * row_keys());
  own.sums = floats(shape_.spec.head_size);
  own.block_sums = floats(shape_.spec.head_size);
  own.strip = floats(heads_at_once_ * kRowColumns);
  own.p = at;
  own.panel = at + aligned(bytes_of(shape_.compute, heads_at_once_ * row_keys()));
  return own;
}

// Products of the queries with keys, a strip of keys at a time. What a strip reads behind the last
// key is of no use and does no harm, as long as it is there.
void AttentionQuery::score(const AttentionArgs& args, const Heads& heads, KeyRange keys,
                           const Own& own) const {
  const AttentionSpec& spec = shape_.spec;
  const int64_t kv_head = heads.first / shape_.group(),
                head_bytes = bytes_of(spec.dtype, spec.head_size);
  RowDot dot{.a = own.q,
             .a_stride = shape_.depth,
             .b_dtype = spec.dtype,
             .c = own.strip,
             .m = heads.count,
             .k = shape_.depth,
             .chain = chain_};
  for (int64_t key = keys.first; key < keys.end; key += kRowColumns) {
    const int64_t row = heads.span.kv_row + key, left = spec.batch * spec.kv_len - row;
    if (spec.head_size == shape_.depth && left >= kRowColumns) {
      dot.b = shape_.key(args.k, row, kv_head).data;
      dot.b_stride = shape_.k_stride();
    } else {
      dot.b = own.panel;
      dot.b_stride = shape_.depth;
      const int64_t row_bytes = bytes_of(spec.dtype, shape_.depth);
      std::fill(own.panel, own.panel + kRowColumns * row_bytes, 0);
      for (int64_t i = 0; i < std::min({kRowColumns, left, keys.end - key}); ++i) {
        std::memcpy(own.panel + i * row_bytes, shape_.key(args.k, row + i, kv_head).data,
                    static_cast<size_t>(head_bytes));
      }
    }
    dot_rows(dot);
    const int64_t count = std::min(kRowColumns, keys.end - key);
    for (int64_t h = 0; h < heads.count; ++h) {
      const float* const from = own.strip + h * kRowColumns;
      std::copy(from, from + count, own.scores + h * row_keys() + key);
    }
  }
}

// Scores of a head to probabilities, unnormalized; returns what its sums are multiplied by.
// As for many queries, block by block.
float AttentionQuery::softmax(const AttentionArgs& args, const Heads& heads, int64_t head,
                              KeyRange keys, const Own& own) const {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const AttentionSpec& spec = shape_.spec;
  float* const s = own.scores + head * row_keys();
  const Out p = offset(Out{own.p, shape_.compute}, head * row_keys());
  const int64_t block = shape_.k_block, first = keys.first / block * block;
  if (spec.softcap > 0) cap_row({s + first, keys.end - first, spec.scale, spec.softcap});
  if (spec.bias) {
    const In bias = shape_.bias_row(args.bias, heads.span.q_row, heads.first + head);
    add_bias_row(
        {s + first, offset(bias, heads.span.first_key + first), keys.end - first, spec.scale});
  }
  std::fill(s + first, s + std::max(first, keys.first), kLowest);
  float top = kLowest, total = 0;
  for (int64_t key = first; key < keys.end; key += block)
    top = std::max(top, row_max(s + key, std::min(block, keys.end - key)));
  const float shift = top == kLowest ? 0.0f : top * shape_.score_scale();
  for (int64_t key = first; key < keys.end; key += block) {
    const int64_t n = std::min(block, keys.end - key);
    total += softmax_row({s + key, offset(p, key), n, n, shape_.score_scale(), shift});
  }
  const bool is_empty = keys.end == 0 || total == 0;
  if (args.lse != nullptr) {
    args.lse[heads.span.q_row * spec.heads + heads.first + head] =
        is_empty ? kLowest : shift + std::log(total);
  }
  return is_empty ? 0.0f : 1.0f / total;
}

void AttentionQuery::attend(const AttentionArgs& args, const Heads& heads, const Own& own) const {
  const AttentionSpec& spec = shape_.spec;
  const int64_t row = heads.span.q_row, block = shape_.k_block;
  const KeyRange keys = shape_.seen(heads.span, 0);
  for (int64_t h = 0; h < heads.count; ++h) {
    pack_rows({shape_.query(args.q, row, heads.first + h), spec.head_size, Transpose::no},
              {0, 1, spec.head_size, shape_.depth}, {own.q + h * shape_.depth, Dtype::f32});
  }
  const int64_t first = keys.first / block * block;
  score(args, heads, {first, keys.end}, own);
  for (int64_t h = 0; h < heads.count; ++h) {
    const float factor = softmax(args, heads, h, keys, own);
    std::fill(own.sums, own.sums + spec.head_size, 0.0f);
    WeightedRows sum{.x_stride = shape_.k_stride(), .n = spec.head_size, .chain = chain_};
    sum.y = own.block_sums;
    for (int64_t key = first; key < keys.end; key += block) {
      sum.p = offset(In{own.p, shape_.compute}, h * row_keys() + key);
      sum.x = shape_.key(args.v, heads.span.kv_row + key, heads.first / shape_.group());
      sum.rows = std::min(block, keys.end - key);
      sum_weighted_rows(sum);
      for (int64_t i = 0; i < spec.head_size; ++i) own.sums[i] += own.block_sums[i];
    }
    scale_row(own.sums, shape_.query(args.o, row, heads.first + h), factor, spec.head_size);
  }
}

void AttentionQuery::launch(const AttentionArgs& args, ThreadPool& pool) const {
  const AttentionSpec& spec = shape_.spec;
  const int64_t tasks = spec.heads / heads_at_once_;
  for_tiles(pool, spec.batch * tasks, [&](int64_t task, int thread) {
    AttentionSpan span = shape_.sequence(args, task / tasks);
    if (args.positions != nullptr) span.positions = args.positions + span.q_row;
    attend(args, {shape_.part(span, 0), task % tasks * heads_at_once_, heads_at_once_},
           own(args, thread));
  });
}

}  // namespace octet::cpu
