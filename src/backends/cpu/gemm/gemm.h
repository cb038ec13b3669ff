// Matrix product on the pool:  C [M, N] = scale op(A) op(B) (+ bias row) (+ addend).
//   op(A) [M, K], op(B) [K, N], C [M, N]: row-major, any sizes (0 included); dense but for a_row
//   and c_row A, B: f32, bf16, or 8-bit codes (e4m3, e5m2, hif8)    C: f32 or bf16 a transposed
//   operand is stored as [K, M] or [N, K]    scale = scale_a * scale_b * alpha, f32
// 8-bit codes decode to bf16, which is exact. Two bf16 operands multiply in bf16 where the machine
// is fast at it, else both widen to f32; a mixed pair and f32 are true f32 products. Sums are f32;
// scale, bias and addend come in f32 in that order, with one rounding on store.
// Same bits for any number of threads: output tiles depend on the shape alone, no sum crosses them.
//
// An instance is prepared once for a shape (it makes the library's primitives and may throw) and
// launched often; launch does not allocate. Operands are packed into the caller's scratch, in
// slices of bounded size.
#pragma once

#include <cstddef>
#include <memory>

#include "backends/cpu/gemm/pack.h"

namespace octet::cpu {

// Tiles of the result: as many as keep every thread busy, or large ones, for a thread alone.
enum class GemmTiles : uint8_t { many, large };

struct GemmSpec {
  int64_t m = 0, n = 0, k = 0;
  Dtype a = Dtype::f32, b = Dtype::f32, c = Dtype::f32;
  Transpose trans_a = Transpose::no, trans_b = Transpose::no;
  GemmTiles tiles = GemmTiles::many;
  int64_t a_row = 0;  // of an A that is not transposed: elements of a row as it lies, zeros behind
                      // K; 0: K
  int64_t c_row = 0;  // elements of a row of C as it lies, zeros behind N; 0: N

  // Elements between the rows of A and B as they lie.
  int64_t a_stride() const { return trans_a == Transpose::yes ? m : std::max(k, a_row); }
  int64_t b_stride() const { return trans_b == Transpose::yes ? k : n; }
  int64_t c_stride() const { return std::max(n, c_row); }
};

struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  // Read at launch; an absent one is 1.
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  const float* alpha = nullptr;
  In bias = {};             // optional [N]
  In addend = {};           // optional [M, N]; may be C
  void* scratch = nullptr;  // scratch_bytes(), aligned to 64 bytes
};

class Gemm {
 public:
  // Elements of a row of C, of n columns, that large tiles fill without a copy where C is f32 and
  // the launch has no scale, bias or addend.
  static int64_t whole_row(int64_t n);
  // Throws invalid_argument on a type that is not listed above.
  Gemm(const GemmSpec& spec, int n_threads);

  size_t scratch_bytes() const;
  // `pool` has at most n_threads threads.
  void launch(const GemmArgs& args, ThreadPool& pool) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // of copies too: launch functions are copied
};

}  // namespace octet::cpu
