#include "backends/cpu/gemm/row_pairs.h"

#include <immintrin.h>

#include <cstring>

#include "backends/cpu/gemm/row_lanes.h"
#include "base/error.h"

namespace octet::cpu {
namespace {

#define OCTET_DOTS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

constexpr int kWords = 16;  // of two elements, of a line
static_assert(kDotDepth == 2 * kWords && kRowColumns % kWords == 0);

// words[i]: lane j has word i of what lane i of words[j] had.
OCTET_DOTS inline __attribute__((always_inline)) void transpose(__m512i (&words)[kWords]) {
  constexpr __mmask16 kAll = 0xFFFF;  // without a mask GCC 12 warns of its own header
  constexpr __mmask8 kAll8 = 0xFF;
  __m512i t[kWords];
#pragma GCC unroll 16
  for (int i = 0; i < kWords; i += 2) {
    t[i] = _mm512_maskz_unpacklo_epi32(kAll, words[i], words[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_epi32(kAll, words[i], words[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kWords; i += 4) {
    words[i] = _mm512_maskz_unpacklo_epi64(kAll8, t[i], t[i + 2]);
    words[i + 1] = _mm512_maskz_unpackhi_epi64(kAll8, t[i], t[i + 2]);
    words[i + 2] = _mm512_maskz_unpacklo_epi64(kAll8, t[i + 1], t[i + 3]);
    words[i + 3] = _mm512_maskz_unpackhi_epi64(kAll8, t[i + 1], t[i + 3]);
  }
  constexpr int kEven = 0x88, kOdd = 0xDD;  // parts of 128 bits of the one, then of the other
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i even_low = _mm512_maskz_shuffle_i32x4(kAll, words[i], words[i + 4], kEven);
    const __m512i odd_low = _mm512_maskz_shuffle_i32x4(kAll, words[i], words[i + 4], kOdd);
    const __m512i even_high = _mm512_maskz_shuffle_i32x4(kAll, words[i + 8], words[i + 12], kEven);
    const __m512i odd_high = _mm512_maskz_shuffle_i32x4(kAll, words[i + 8], words[i + 12], kOdd);
    t[i] = _mm512_maskz_shuffle_i32x4(kAll, even_low, even_high, kEven);
    t[i + 4] = _mm512_maskz_shuffle_i32x4(kAll, odd_low, odd_high, kEven);
    t[i + 8] = _mm512_maskz_shuffle_i32x4(kAll, even_low, even_high, kOdd);
    t[i + 12] = _mm512_maskz_shuffle_i32x4(kAll, odd_low, odd_high, kOdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kWords; ++i) words[i] = t[i];
}

// kWords columns from `col` on, for R rows.
template <int R>
OCTET_DOTS void multiply_block(const RowPairs& p, int64_t col) {
  __m512 sums[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    sums[r] =
        p.sum == RowSum::carry ? _mm512_loadu_ps(p.c + r * kRowColumns + col) : _mm512_setzero_ps();
  }
  const uint16_t* b = p.b + col * p.b_stride;
  const uint16_t* a = p.a;
  LineFetch lines(reinterpret_cast<const char*>(b + kWords * p.b_stride), 2 * p.b_stride, 2 * p.k);
  for (int64_t k = 0; k < p.k; k += kDotDepth, a += kDotDepth, b += kDotDepth) {
    __m512i words[kWords];
#pragma GCC unroll 16
    for (int j = 0; j < kWords; ++j) {
      words[j] = _mm512_loadu_si512(b + j * p.b_stride);
    }
    if (p.fetch == Fetch::next_columns) lines.next<kWords>();
    transpose(words);
#pragma GCC unroll 16
    for (int i = 0; i < kWords; ++i) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        int pair;
        std::memcpy(&pair, a + r * p.a_stride + 2 * i, sizeof(pair));
        sums[r] = _mm512_dpbf16_ps(sums[r], (__m512bh)_mm512_set1_epi32(pair), (__m512bh)words[i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(p.c + r * kRowColumns + col, sums[r]);
}

#undef OCTET_DOTS

template <int R>
void multiply_rows_of(const RowPairs& p) {
  if constexpr (R > 0) {
    if (p.m < R) return multiply_rows_of<R - 1>(p);
    for (int64_t col = 0; col < kRowColumns; col += kWords) multiply_block<R>(p, col);
  }
}

}  // namespace

void multiply_pairs(const RowPairs& product) {
  CHECK(has_dot_lanes() && product.m <= kMaxPairRows && product.sum != RowSum::add);
  CHECK(product.k % kDotDepth == 0 && product.a_stride % 2 == 0);
  multiply_rows_of<kMaxPairRows>(product);
}

}  // namespace octet::cpu
