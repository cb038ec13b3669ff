// Attention of one query of each sequence, as a decoded token has it: keys and values are read
// once, from where they lie, and nothing is packed. Sums have the order of the products of many
// rows (row_dot.h), so a query's bits are the same in both.
#pragma once

#include "backends/cpu/attention/attention_rows.h"

namespace octet::cpu {

class AttentionQuery {
 public:
  // True if there is a kernel for queries of this shape, whose blocks have their sizes.
  static bool applies(const AttentionShape& shape);
  AttentionQuery(const AttentionShape& shape, int n_threads);

  size_t scratch_bytes() const;
  void launch(const AttentionArgs& args, ThreadPool& pool) const;

 private:
  // Buffers of a thread: queries [heads, depth], scores and probabilities [heads, keys], sums of
  // all keys and of a block [head_size], a strip's scores [heads, kRowColumns] and its keys
  // [kRowColumns, depth].
  struct Own {
    float *q, *scores, *sums, *block_sums, *strip;
    char *p, *panel;
  };
  // Heads of one sequence that read the same keys.
  struct Heads {
    AttentionSpan span;
    int64_t first = 0, count = 1;
  };
  Own own(const AttentionArgs& args, int thread) const;
  int64_t thread_bytes() const;
  int64_t row_keys() const { return shape_.n_k_blocks() * shape_.k_block; }
  void score(const AttentionArgs& args, const Heads& heads, KeyRange keys, const Own& own) const;
  float softmax(const AttentionArgs& args, const Heads& heads, int64_t head, KeyRange keys,
                const Own& own) const;
  void attend(const AttentionArgs& args, const Heads& heads, const Own& own) const;

  AttentionShape shape_;
  DotChain chain_;
  int64_t heads_at_once_ = 1;
  int n_threads_;
};

}  // namespace octet::cpu
