// A matrix product with few rows (gemm.h), as in generation: op(B) is read once, from where it
// lies, in strips of columns that are packed in the first-level cache; nothing is packed in memory.
// Sums have the order of the product with many rows, so a row's bits are the same in both.
#pragma once

#include <cstddef>
#include <functional>

#include "backends/cpu/gemm.h"
#include "backends/cpu/row_product.h"

namespace octet::cpu {

class GemmRows {
 public:
  // Strides of `spec` are resolved, A is no transposed matrix of codes; `order` is that of its k,
  // rounded up to kTileDepth.
  GemmRows(const GemmSpec& spec, const SumOrder& order, int n_threads);

  size_t scratch_bytes() const;
  // Gets the sums [m, kRowColumns] of columns [strip * kRowColumns, ...), on any thread.
  using Finish = std::function<void(int64_t strip, const float* sums)>;
  void launch(const GemmArgs& args, ThreadPool& pool, const Finish& finish) const;

 private:
  // What a thread works in.
  struct Own {
    float *panel, *run, *sums;
    uint16_t* decoded;
  };
  Own own(const GemmArgs& args, int thread) const;
  void pack_a(const GemmArgs& args) const;
  void strip(const GemmArgs& args, int64_t index, const Own& own) const;
  void pack(const GemmArgs& args, const PanelRange& range, int64_t n_rows, const Own& own) const;

  GemmSpec spec_;
  SumOrder order_;
  int n_threads_;
  int64_t k_padded_;
};

}  // namespace octet::cpu
