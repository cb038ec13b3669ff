// Matrix product on the pool:  C [M, N] = alpha op(A) op(B) (+ bias row) (+ addend) (+ C), any
// sizes, 0 included.
//   op(A) [M, K], op(B) [K, N], C: row-major with row strides; A, B in {f32, bf16}, C in {f32,
//   bf16} a transposed operand is stored as [K, M] or [N, K]
// Both operands bf16: products in bf16 where the machine multiplies bf16 fast, else both widen
// (exactly) to f32; a mixed pair and f32 use true f32 products. Sums are f32; alpha, bias, addend
// and C are added in f32 in that order, one rounding on store. Same bits for any number of threads:
// output tiles depend on the shape alone and no sum crosses tiles.
//
// An instance is prepared once for a shape (it makes the library's primitives and may throw) and
// launched often; launch does not allocate. Operands are packed into the caller's scratch, in
// slices of bounded size.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "backends/cpu/embedding.h"
#include "backends/cpu/pack.h"

namespace octet::cpu {

struct GemmSpec {
  int64_t m = 0, n = 0, k = 0;
  Dtype a = Dtype::f32, b = Dtype::f32, c = Dtype::f32;
  Transpose trans_a = Transpose::no, trans_b = Transpose::no;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;  // elements between rows; 0: dense
  Accumulate accumulate = Accumulate::no;            // adds the old C
  std::optional<Dtype> compute =
      std::nullopt;  // f32 or bf16; unset: the fastest that keeps the contract
};

struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const float* alpha = nullptr;  // read at launch; null: 1
  In bias = {};                  // optional [N]
  In addend = {};                // optional [M, N], stride addend_stride (0: dense); may be C
  int64_t addend_stride = 0;
  void* scratch = nullptr;  // scratch_bytes(), aligned to 64 bytes
};

class Gemm {
 public:
  // Throws invalid_argument on a type that is not listed above or a stride below the row's length.
  Gemm(const GemmSpec& spec, int n_threads);
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;

  size_t scratch_bytes() const;
  // The type of the products: bf16 or f32.
  Dtype compute() const;
  // `pool` has at most n_threads threads.
  void launch(const GemmArgs& args, ThreadPool& pool) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet::cpu
