// Operands of the fast CPU kernels: a pointer with its storage type, and tiles for the thread pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/thread_pool.h"
#include "formats/dtype.h"

namespace octet::cpu {

// A tensor that is read: f32 or bf16 storage, no alignment beyond the element's. Absent when data
// is null.
struct In {
  const void* data = nullptr;
  Dtype dtype = Dtype::f32;
  explicit operator bool() const { return data != nullptr; }
};

// A tensor that is written, or read and written where the kernel says so.
struct Out {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  explicit operator bool() const { return data != nullptr; }
  operator In() const { return {data, dtype}; }
};

inline In offset(In x, int64_t elements) {
  if (!x) return x;
  return {static_cast<const char*>(x.data) + bytes_of(x.dtype, elements), x.dtype};
}
inline Out offset(Out x, int64_t elements) {
  if (!x) return x;
  return {static_cast<char*>(x.data) + bytes_of(x.dtype, elements), x.dtype};
}

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// Element-wise work is cut in blocks of this many elements, for any number of threads.
inline constexpr int64_t kBlockElems = 16384;
// Sums over rows are cut in blocks of this many rows; the blocks' sums are added in order.
inline constexpr int64_t kBlockRows = 64;

// fn(tile, thread) on the pool, without copying fn.
template <typename Fn>
void for_tiles(ThreadPool& pool, int64_t n_tiles, Fn&& fn) {
  pool.run(n_tiles, std::cref(fn));
}

// fn(begin, end, thread) over [0, n) in blocks.
template <typename Fn>
void for_blocks(ThreadPool& pool, int64_t n, int64_t block, Fn&& fn) {
  for_tiles(pool, ceil_div(n, block), [&](int64_t tile, int thread) {
    fn(tile * block, std::min(n, (tile + 1) * block), thread);
  });
}

struct RowShape {
  int64_t rows = 0, cols = 0;
};

}  // namespace octet::cpu
