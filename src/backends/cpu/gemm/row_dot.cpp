#include "backends/cpu/gemm/row_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/row_dot.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/flush_scope.h"
#include "backends/cpu/common/simd-inl.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kWords = 4;  // of 4 bytes that are read of a row at a time

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void load_words(const char* b, int64_t, VU (&words)[kWords]) {
  for (int i = 0; i < kWords; ++i)
    words[i] = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(b) + i);
}
#else
// 16 bytes of row i, of row i + 4, ...: as many as a vector holds.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const char* b, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == kWords) {
    return hn::LoadU(d, reinterpret_cast<const uint32_t*>(b));
  } else {
    const hn::Half<D> half;
    const int64_t upper = static_cast<int64_t>(hn::Lanes(half)) * stride;
    return hn::Combine(d, load_blocks(half, b + upper, stride), load_blocks(half, b, stride));
  }
}

// words[i]: lane r has word i of row r.
HWY_INLINE void load_words(const char* b, int64_t stride, VU (&words)[kWords]) {
  const U32 d;
  const VU r0 = load_blocks(d, b, stride), r1 = load_blocks(d, b + stride, stride);
  const VU r2 = load_blocks(d, b + 2 * stride, stride), r3 = load_blocks(d, b + 3 * stride, stride);
  const VU low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
  const VU high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
  words[0] = hn::InterleaveLower(d, low02, low13);
  words[1] = hn::InterleaveUpper(d, low02, low13);
  words[2] = hn::InterleaveLower(d, high02, high13);
  words[3] = hn::InterleaveUpper(d, high02, high13);
}
#endif

HWY_INLINE VF first_of(VU pair) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(pair));
}
HWY_INLINE VF second_of(VU pair) {
  return hn::BitCast(F32(), hn::And(pair, hn::Set(U32(), 0xFFFF0000u)));
}

template <int R, int V>
struct Sums {
  VF of[R][V];
  HWY_INLINE void clear() {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) of[r][v] = zero();
    }
  }
  HWY_INLINE void load(const float* c) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v)
        of[r][v] =
            hn::LoadU(F32(), c + r * kRowColumns + v * static_cast<int64_t>(hn::Lanes(F32())));
    }
  }
  HWY_INLINE void store(float* c) const {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v)
        hn::StoreU(of[r][v], F32(),
                   c + r * kRowColumns + v * static_cast<int64_t>(hn::Lanes(F32())));
    }
  }
  // += a[r] column[v]
  HWY_INLINE void add(const float* a, int64_t stride, const VF (&column)[V]) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const VF x = set(a[r * stride]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) of[r][v] = hn::MulAdd(x, column[v], of[r][v]);
    }
  }
};

// Sums of one chain; for tiles with those of the 32 elements.
template <DotChain chain, Dtype dtype, int R, int V>
struct Chain {
  Sums<R, V> sums, even, odd;

  HWY_INLINE void begin_depth() {
    if constexpr (chain == DotChain::tiles) {
      even.clear();
      odd.clear();
    }
  }
  // Word i of each row: an element of f32, or two of bf16; a at the first element of word 0.
  HWY_INLINE void add_word(int i, const VU (&words)[V][kWords], const float* a, int64_t stride) {
    VF first[V], second[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      if constexpr (dtype == Dtype::f32) {
        first[v] = hn::BitCast(F32(), words[v][i]);
      } else {
        first[v] = first_of(words[v][i]);
        second[v] = second_of(words[v][i]);
      }
    }
    if constexpr (dtype == Dtype::f32) {
      sums.add(a + i, stride, first);
    } else if constexpr (chain == DotChain::steps) {
      sums.add(a + 2 * i, stride, first);
      sums.add(a + 2 * i + 1, stride, second);
    } else if constexpr (chain == DotChain::dots) {
      sums.add(a + 2 * i + 1, stride, second);
      sums.add(a + 2 * i, stride, first);
    } else {
      even.add(a + 2 * i, stride, first);
      odd.add(a + 2 * i + 1, stride, second);
    }
  }
  HWY_INLINE void end_depth() {
    if constexpr (chain == DotChain::tiles) {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v)
          sums.of[r][v] = hn::Add(sums.of[r][v], hn::Add(even.of[r][v], odd.of[r][v]));
      }
    }
  }
};

// Rows [row, row + R) of a and [col, col + V * lanes) of b.
template <DotChain chain, Dtype dtype, int R, int V>
void dot_block(const RowDot& p, int64_t row, int64_t col) {
  constexpr int kBytes = dtype == Dtype::f32 ? 4 : 2, kSteps = kWords * 4 / kBytes;
  static_assert(kDotDepth % (4 * kSteps) == 0);
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const int64_t stride = p.b_stride * kBytes;
  const char* b = static_cast<const char*>(p.b) + col * stride;
  const float* a = p.a + row * p.a_stride;
  float* const c = p.c + row * kRowColumns + col;
  Chain<chain, dtype, R, V> all;
  p.sum == RowSum::carry ? all.sums.load(c) : all.sums.clear();
  for (int64_t k = 0; k < p.k; k += kDotDepth) {
    all.begin_depth();
#pragma GCC unroll 1
    for (int step = 0; step < kDotDepth; step += kSteps, b += kSteps * kBytes, a += kSteps) {
      VU words[V][kWords];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) load_words(b + v * lanes * stride, stride, words[v]);
      // A quarter of the rows' lines a step: many at once would keep the loads waiting.
      if (p.ahead != 0) {
        const char* line = b + p.ahead + (step / kSteps % 4) * (V * lanes / 4) * stride;
        for (int64_t i = 0; i < V * lanes / 4; ++i, line += stride) __builtin_prefetch(line);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kWords; ++i) all.add_word(i, words, a, p.a_stride);
    }
    all.end_depth();
  }
  all.sums.store(c);
}

template <DotChain chain, Dtype dtype, int R, int V>
void dot_strip(const RowDot& p, int64_t row) {
  const int64_t width = V * static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t col = 0; col < kRowColumns; col += width) dot_block<chain, dtype, R, V>(p, row, col);
}

template <DotChain chain, Dtype dtype>
void dot_all(const RowDot& p) {
  static_assert(kRowColumns % (4 * HWY_MAX_BYTES / sizeof(float)) == 0 || HWY_MAX_BYTES == 64);
  constexpr int kWide = HWY_MAX_BYTES == 64 ? 2 : 4;
  RowDot rest = p;
  int64_t row = 0;
  for (; row + 4 <= p.m; row += 4, rest.ahead = 0) dot_strip<chain, dtype, 4, 2>(rest, row);
  switch (p.m - row) {
    case 3:
      return dot_strip<chain, dtype, 3, 2>(rest, row);
    case 2:
      return dot_strip<chain, dtype, 2, 2>(rest, row);
    case 1:
      return dot_strip<chain, dtype, 1, kWide>(rest, row);
    default:
      return;
  }
}

void DotRows(const RowDot& p) {
  if (p.chain == DotChain::tiles) return dot_all<DotChain::tiles, Dtype::bf16>(p);
  if (p.chain == DotChain::dots) return dot_all<DotChain::dots, Dtype::bf16>(p);
  if (p.b_dtype == Dtype::bf16) return dot_all<DotChain::steps, Dtype::bf16>(p);
  dot_all<DotChain::steps, Dtype::f32>(p);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {
namespace {

HWY_EXPORT(DotRows);

}  // namespace

void dot_rows(const RowDot& dot) {
  CHECK(dot.k % kDotDepth == 0 && dot.sum != RowSum::add);
  CHECK(dot.chain == DotChain::steps || dot.b_dtype == Dtype::bf16);
  if (dot.chain == DotChain::steps) return HWY_DYNAMIC_DISPATCH(DotRows)(dot);
  const FlushScope flush;
  HWY_DYNAMIC_DISPATCH(DotRows)(dot);
}

}  // namespace octet::cpu
#endif
