// One product of fixed size on one thread: c [m, n] f32 (+)= a [m, k] b [k, n], with a and b both
// f32 or both bf16, a dense by rows and b in panels. A wrapper of oneDNN's matmul primitive, which
// accumulates in f32 and always gives the same bits. Its kernels add some of the last rows in
// another order than the rest. Under RowSums::same a row's bits do not depend on how many rows
// there are: rows beyond the last kTileRows go through multiply_rows instead, in the order of the
// rest; where that order is not known or depends on the whole shape (library_sum_order; BF16), the
// library makes products of kTileRows x kTileColumns alone, the last of which is filled up with
// zeros.
//
// n is a multiple of kTileColumns and k of kTileDepth (callers pad with zeros), so that the library
// pads nothing itself; under RowSums::library n may also be a smaller multiple of kNarrowColumns.
// run() allocates nothing of ours and may be called by any number of threads with different
// `thread` numbers.
#pragma once

#include <cstddef>
#include <memory>

#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/gemm/row_dot.h"

namespace octet::cpu {

inline constexpr int64_t kTileColumns = 64;
inline constexpr int64_t kNarrowColumns = 16;
inline constexpr int64_t kTileDepth = 32;
inline constexpr int64_t kTileRows = 64;
// Products whose k is no more may have this one, where has_narrow_depth says so.
inline constexpr int64_t kNarrowDepth = 16;

// Sums of a product's last rows. Training keeps the library's way; generation wants the
// same bits for any number of rows. Scratch and kernel depend on it, so a back end asks for both
// inside a scope of its own choice.
enum class RowSums : uint8_t { library, same };

// While it lives, products that this thread makes are of this kind. Scopes nest.
class RowSumsScope {
 public:
  explicit RowSumsScope(RowSums sums);
  ~RowSumsScope();
  RowSumsScope(const RowSumsScope&) = delete;
  RowSumsScope& operator=(const RowSumsScope&) = delete;

 private:
  RowSums before_;
};
RowSums row_sums();

struct TileShape {
  int64_t m = 0, n = 0, k = 0;
  Dtype dtype = Dtype::f32;  // f32 or bf16; bf16 only where bf16_compute_dtype() says so
  bool accumulate = false;
};

// True if products of this type may have k = kNarrowDepth: not by the tile unit, which multiplies
// kTileDepth at once.
bool has_narrow_depth(Dtype dtype);

// The order in which the library adds the k products of an element, found by trying: both kinds of
// kernel multiply the same numbers, in products of kTileRows x kTileColumns. Not known where no
// order gives the library's bits. Kept for each k and instruction set.
SumOrder library_sum_order(int64_t k);
// The same of BF16.
DotOrder library_dot_order(int64_t k);

class TileGemm {
 public:
  TileGemm(const TileShape& shape, int n_threads);

  const TileShape& shape() const;
  // How b is laid out: n / width panels, one after another.
  const PanelLayout& panels() const;
  // Scratch of one thread, aligned to 64 bytes.
  size_t scratch_bytes() const;

  struct Buffers {
    const void* a = nullptr;
    const void* b = nullptr;
    float* c = nullptr;
    void* scratch = nullptr;
  };
  void run(int thread, const Buffers& buffers) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // of copies too
};

}  // namespace octet::cpu
