// A matrix product with few rows (gemm.h), as in generation: op(B) is read once, from where it
// lies, in strips of columns; nothing is packed in memory. A transposed B is multiplied in
// registers (row_dot.h, row_pairs.h, row_lanes.h), decoded in the first-level cache where it is of
// codes; another one is packed there. Sums have the order of the product with many rows, so a row's
// bits are the same in both.
#pragma once

#include <cstddef>
#include <functional>

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/gemm/row_dot.h"

namespace octet::cpu {

class GemmRows {
 public:
  // True if there is a kernel for the products of `spec`, summed in this order.
  static bool applies(const GemmSpec& spec, const DotOrder& order);
  // Rows below which it is the faster one, of a product in this type and order.
  static int64_t most_rows(Dtype compute, DotChain chain);
  // `order` is that of its k, rounded up to kTileDepth.
  GemmRows(const GemmSpec& spec, const DotOrder& order, int n_threads);

  size_t scratch_bytes() const;
  // Columns of a tile of the result.
  int64_t columns() const { return apart_ * kRowColumns; }
  // Gets the sums [m, columns()] of columns [tile * columns(), ...), on any thread.
  using Finish = std::function<void(int64_t tile, const float* sums)>;
  void launch(const GemmArgs& args, ThreadPool& pool, const Finish& finish) const;

 private:
  // Columns begin, begin + apart, ... of op(B).
  struct Strip {
    int64_t begin = 0, count = kRowColumns, apart = 1;
  };
  struct Depth {
    int64_t begin = 0, end = 0;  // rows of op(B); beyond its last one are zeros
  };
  // Buffers of a thread: sums of a run, of a strip and of a tile.
  struct Own {
    float *panel, *run, *strip, *tile;
    uint16_t* decoded;
  };
  // Ways to read op(B): packed in parts, or a transposed one as it lies, by dot_rows,
  // multiply_pairs or multiply_lanes.
  enum class Kernel : uint8_t { packed, dots, pairs, lanes };
  static Kernel kernel_of(const GemmSpec& spec, const DotOrder& order, int64_t k_padded);
  int64_t strip_bytes() const;
  int64_t own_bytes() const;
  Own own(const GemmArgs& args, int thread) const;
  // Type that a transposed B is multiplied in.
  Dtype panel_dtype() const { return spec_.b == Dtype::f32 ? Dtype::f32 : Dtype::bf16; }
  Dtype row_dtype() const { return kernel_ == Kernel::pairs ? Dtype::bf16 : Dtype::f32; }
  void pack_a(const GemmArgs& args) const;
  void pack_lanes(const GemmArgs& args) const;
  int64_t row_bytes() const;   // of the scratch: op(A) by rows
  int64_t lane_bytes() const;  // behind them: the same by lanes
  void multiply_tile(const GemmArgs& args, int64_t index, const Own& own) const;
  void multiply(const GemmArgs& args, const Strip& strip, const Own& own) const;
  void run(const GemmArgs& args, const Strip& strip, const Depth& depth, const Own& own) const;
  void dot(const GemmArgs& args, int64_t k, RowDot dot) const;
  void run_packed(const GemmArgs& args, const Strip& strip, const Depth& depth,
                  const Own& own) const;
  void pack(const GemmArgs& args, const Strip& strip, const Depth& depth, const Own& own) const;
  void copy(const GemmArgs& args, const Strip& strip, const Depth& depth, const Own& own) const;

  GemmSpec spec_;
  DotOrder order_;
  int n_threads_;
  int64_t k_padded_;
  Kernel kernel_ = Kernel::dots;
  int64_t apart_ = 1;  // columns of op(B) between those of a whole strip
};

}  // namespace octet::cpu
