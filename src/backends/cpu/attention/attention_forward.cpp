#include <cmath>
#include <limits>

#include "backends/cpu/attention/attention_query.h"
#include "base/error.h"

namespace octet::cpu {
namespace {

constexpr int64_t kQueryBlock = 64, kKeyBlock = 128;
constexpr int64_t kSliceBytes = int64_t{16} << 20;  // packed keys and values at a time

}  // namespace

// One head's queries of a block of a span.
struct QueryBlock {
  AttentionSpan span;
  int64_t head = 0, q0 = 0;
};

// Without ranges two stages for each slice of (sequence, kv head) pairs: pack K and V, then one
// tile for each head and query block. With ranges one tile for each head of a sequence, which packs
// its parts one after the other, each thread in a place of its own.
struct AttentionForward::State {
  AttentionShape shape;
  std::unique_ptr<TileGemm> scores, output;
  int64_t slice_pairs = 0;
  int64_t k_block_bytes = 0, v_block_bytes = 0;  // packed
  int64_t q_bytes = 0, s_bytes = 0, p_bytes = 0, o_bytes = 0, product_bytes = 0;
  int n_threads = 1;
  std::unique_ptr<AttentionQuery> one_query;  // instead of all of the above

  int64_t pair_bytes() const { return shape.n_k_blocks() * (k_block_bytes + v_block_bytes); }
  int64_t thread_bytes() const { return q_bytes + s_bytes + p_bytes + o_bytes + product_bytes; }

  void pack(const AttentionArgs& args, const AttentionSpan& span, int64_t kv_head, int64_t block,
            char* packed) const;
  void tile(const AttentionArgs& args, const QueryBlock& queries, int thread,
            const char* packed) const;
  void parts(const AttentionArgs& args, const AttentionSpan& sequence, int64_t head,
             int thread) const;
  void add_bias(const AttentionArgs& args, const QueryBlock& queries, const KeyRange& blocks,
                float* s) const;
  void softmax(char* own, const QueryBlock& queries, const KeyRange& blocks, float* factor,
               float* lse) const;
};

AttentionForward::AttentionForward(const AttentionSpec& spec, int n_threads)
    : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.shape = checked_shape(spec);
  s.n_threads = n_threads;
  if (spec.batch == 0) return;
  AttentionShape& shape = s.shape;
  shape.q_block = std::min(kQueryBlock, spec.q_len);
  shape.k_block = std::clamp(round_up(spec.kv_len, kTileColumns), kTileColumns, kKeyBlock);
  if (AttentionQuery::applies(shape)) {
    s.one_query = std::make_unique<AttentionQuery>(shape, n_threads);
    return;
  }
  s.scores = std::make_unique<TileGemm>(
      TileShape{shape.q_block, shape.k_block, shape.depth, shape.compute, false}, n_threads);
  s.output = std::make_unique<TileGemm>(
      TileShape{shape.q_block, shape.columns, shape.k_block, shape.compute, true}, n_threads);
  s.k_block_bytes = shape.k_block * shape.depth * shape.elem();
  s.v_block_bytes = shape.k_block * shape.columns * shape.elem();
  const int64_t row_elems = shape.n_k_blocks() * shape.k_block;
  s.q_bytes = round_up(shape.q_block * shape.depth * shape.elem(), 64);
  s.s_bytes = shape.q_block * row_elems * 4;
  s.p_bytes = shape.compute == Dtype::f32 ? 0 : shape.q_block * row_elems * shape.elem();
  s.o_bytes = shape.q_block * shape.columns * 4;
  s.product_bytes =
      static_cast<int64_t>(std::max(s.scores->scratch_bytes(), s.output->scratch_bytes()));
  s.slice_pairs =
      std::clamp<int64_t>(kSliceBytes / std::max<int64_t>(1, s.pair_bytes()), 1, shape.pairs());
  if (spec.ranges == KeyRanges::given) s.slice_pairs = n_threads;
}

size_t AttentionForward::scratch_bytes() const {
  const State& s = *state_;
  if (s.one_query != nullptr) return s.one_query->scratch_bytes();
  return static_cast<size_t>(s.slice_pairs * s.pair_bytes() + s.n_threads * s.thread_bytes());
}

// K^T and V of one block of keys as panels.
void AttentionForward::State::pack(const AttentionArgs& args, const AttentionSpan& span,
                                   int64_t kv_head, int64_t block, char* packed) const {
  const AttentionSpec& spec = shape.spec;
  const KeyRange blocks = shape.blocks(span, 0, span.q_len);
  if (block < blocks.first || block >= blocks.end) return;
  const int64_t first = block * shape.k_block;
  int64_t end = span.kv_len;
  if (span.positions != nullptr) {  // of a cache what is behind the last position is nobody's
    for (int64_t query = end = 0; query < span.q_len; ++query)
      end = std::max(end, shape.seen(span, query).end);
  }
  const int64_t keys = std::min(shape.k_block, end - first);
  const int64_t row = span.kv_row + first;
  char* const k = packed + block * k_block_bytes;
  char* const v = packed + shape.n_k_blocks() * k_block_bytes + block * v_block_bytes;
  pack_operand({shape.key(args.k, row, kv_head), shape.k_stride(), Transpose::yes}, *scores,
               {spec.head_size, keys}, k);
  pack_operand({shape.key(args.v, row, kv_head), shape.k_stride(), Transpose::no}, *output,
               {keys, spec.head_size}, v);
}

// The bias of a block of queries, added to their scores.
void AttentionForward::State::add_bias(const AttentionArgs& args, const QueryBlock& queries,
                                       const KeyRange& blocks, float* s) const {
  const AttentionSpan& span = queries.span;
  const int64_t rows = std::min(shape.q_block, span.q_len - queries.q0);
  for (int64_t r = 0; r < rows; ++r) {
    const In bias = offset(shape.bias_row(args.bias, span.q_row + queries.q0 + r, queries.head),
                           span.first_key);
    for (int64_t j = blocks.first; j < blocks.end; ++j) {
      const int64_t first = j * shape.k_block;
      add_bias_row({s + (j * shape.q_block + r) * shape.k_block, offset(bias, first),
                    std::min(shape.k_block, span.kv_len - first), shape.spec.scale});
    }
  }
}

// Scores to probabilities, unnormalized, in blocks [blocks][q_block][k_block]; factor[r] = 1 / row
// sum.
void AttentionForward::State::softmax(char* own, const QueryBlock& queries, const KeyRange& blocks,
                                      float* factor, float* lse) const {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float* const s = reinterpret_cast<float*>(own + q_bytes);
  const Out p{own + q_bytes + (p_bytes > 0 ? s_bytes : 0), shape.compute};
  for (int64_t r = 0; r < shape.q_block; ++r) {
    const int64_t query = queries.q0 + r;
    const auto [hidden, keys] =
        query < queries.span.q_len ? shape.seen(queries.span, query) : KeyRange{};
    const auto in_block = [&, keys = keys](int64_t j) {
      return std::clamp<int64_t>(keys - j * shape.k_block, 0, shape.k_block);
    };
    // The keys before those that it sees
    for (int64_t j = blocks.first; j < blocks.end && j * shape.k_block < hidden; ++j) {
      float* const block = s + (j * shape.q_block + r) * shape.k_block;
      std::fill(block, block + std::min(hidden - j * shape.k_block, shape.k_block), kLowest);
    }
    const auto at = [&](int64_t j) { return (j * shape.q_block + r) * shape.k_block; };
    float top = kLowest;
    for (int64_t j = blocks.first; j < blocks.end; ++j)
      top = std::max(top, row_max(s + at(j), in_block(j)));
    const float shift = top == kLowest ? 0.0f : top * shape.score_scale();
    float total = 0;
    for (int64_t j = blocks.first; j < blocks.end; ++j) {
      total += softmax_row(
          {s + at(j), offset(p, at(j)), in_block(j), shape.k_block, shape.score_scale(), shift});
    }
    const bool is_empty = keys == 0 || total == 0;
    factor[r] = is_empty ? 0.0f : 1.0f / total;
    lse[r] = is_empty ? kLowest : shift + std::log(total);
  }
}

void AttentionForward::State::tile(const AttentionArgs& args, const QueryBlock& queries, int thread,
                                   const char* packed) const {
  const AttentionSpec& spec = shape.spec;
  const AttentionSpan& span = queries.span;
  const int64_t head = queries.head, q0 = queries.q0;
  const int64_t rows = std::min(shape.q_block, span.q_len - q0);
  char* const own =
      static_cast<char*>(args.scratch) + slice_pairs * pair_bytes() + thread * thread_bytes();
  float* const s = reinterpret_cast<float*>(own + q_bytes);
  const char* const p = own + q_bytes + (p_bytes > 0 ? s_bytes : 0);
  float* const o = reinterpret_cast<float*>(own + q_bytes + s_bytes + p_bytes);
  char* const product = reinterpret_cast<char*>(o) + o_bytes;
  const char* const k = packed;
  const char* const v = packed + shape.n_k_blocks() * k_block_bytes;

  const int64_t q_row = span.q_row + q0, sequence = q_row / spec.q_len;
  pack_rows({shape.query(args.q, q_row, head), shape.q_stride(), Transpose::no},
            {0, rows, spec.head_size, shape.depth}, {own, shape.compute});
  std::fill(own + rows * shape.depth * shape.elem(), own + q_bytes, 0);
  const KeyRange blocks = shape.blocks(span, q0, q0 + rows);
  const int64_t block_elems = shape.q_block * shape.k_block;
  for (int64_t j = blocks.first; j < blocks.end; ++j) {
    scores->run(thread, {own, k + j * k_block_bytes, s + j * block_elems, product});
    if (spec.softcap > 0)
      cap_row({s + j * block_elems, rows * shape.k_block, spec.scale, spec.softcap});
  }
  if (spec.bias) add_bias(args, queries, blocks, s);
  float factor[kQueryBlock], lse[kQueryBlock];
  softmax(own, queries, blocks, factor, lse);
  std::fill(o, o + shape.q_block * shape.columns, 0.0f);
  for (int64_t j = blocks.first; j < blocks.end; ++j) {
    output->run(thread, {p + j * block_elems * shape.elem(), v + j * v_block_bytes, o, product});
  }
  for (int64_t r = 0; r < rows; ++r) {
    scale_row(o + r * shape.columns, shape.query(args.o, q_row + r, head), factor[r],
              spec.head_size);
  }
  if (args.lse != nullptr) {
    std::copy(lse, lse + rows,
              args.lse + (sequence * spec.heads + head) * spec.q_len + q_row % spec.q_len);
  }
}

void AttentionForward::State::parts(const AttentionArgs& args, const AttentionSpan& sequence,
                                    int64_t head, int thread) const {
  char* const packed = static_cast<char*>(args.scratch) + thread * pair_bytes();
  for (int64_t row = 0; row < shape.spec.q_len;) {
    const AttentionSpan span = shape.part(sequence, row);
    for (int64_t block = 0; block < shape.n_k_blocks(span); ++block) {
      pack(args, span, head / shape.group(), block, packed);
    }
    for (int64_t q0 = 0; q0 < span.q_len; q0 += shape.q_block) {
      tile(args, {span, head, q0}, thread, packed);
    }
    row += span.q_len;
  }
}

void AttentionForward::launch(const AttentionArgs& args, ThreadPool& pool) const {
  const State& s = *state_;
  const AttentionSpec& spec = s.shape.spec;
  CHECK(pool.n_threads() <= s.n_threads);
  if (spec.batch == 0) return;
  CHECK(spec.bias.has_value() == (args.bias != nullptr));
  const bool has_ranges = args.key_begins != nullptr || args.key_ends != nullptr;
  CHECK(!has_ranges || (spec.ranges == KeyRanges::given && args.positions == nullptr));
  if (s.one_query != nullptr) return s.one_query->launch(args, pool);
  const auto sequence = [&](int64_t index) {
    AttentionSpan span = s.shape.sequence(args, index);
    if (args.positions != nullptr) span.positions = args.positions + span.q_row;
    return span;
  };
  if (has_ranges) {
    for_tiles(pool, spec.batch * spec.heads, [&](int64_t t, int thread) {
      s.parts(args, sequence(t / spec.heads), t % spec.heads, thread);
    });
    return;
  }
  char* const packed = static_cast<char*>(args.scratch);
  const int64_t k_blocks = s.shape.n_k_blocks(), tasks = s.shape.n_q_blocks() * s.shape.group();
  for (int64_t first = 0; first < s.shape.pairs(); first += s.slice_pairs) {
    const int64_t pairs = std::min(s.slice_pairs, s.shape.pairs() - first);
    for_tiles(pool, pairs * k_blocks, [&](int64_t t, int) {
      const int64_t pair = first + t / k_blocks;
      s.pack(args, sequence(pair / spec.kv_heads), pair % spec.kv_heads, t % k_blocks,
             packed + t / k_blocks * s.pair_bytes());
    });
    for_tiles(pool, pairs * tasks, [&](int64_t t, int thread) {
      const int64_t pair = first + t % pairs;
      // Late query blocks see the most keys: first, for balance.
      const int64_t block = s.shape.n_q_blocks() - 1 - t / pairs / s.shape.group();
      const int64_t head = pair % spec.kv_heads * s.shape.group() + t / pairs % s.shape.group();
      s.tile(args, {sequence(pair / spec.kv_heads), head, block * s.shape.q_block}, thread,
             packed + t % pairs * s.pair_bytes());
    });
  }
}

}  // namespace octet::cpu
