#include "backends/cpu/gemm/row_lanes.h"

#include <immintrin.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/row_lanes.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"
#include "base/error.h"

#ifndef OCTET_CPU_ROW_LANES
#define OCTET_CPU_ROW_LANES
namespace octet::cpu {
namespace {

constexpr int64_t kLineBytes = 64;

// A block of columns [col, col + J) and the rows' vectors that it meets.
struct LaneBlock {
  const char* b;         // of its first column
  int64_t column_bytes;  // from a column to the next
  const float* a;        // words of the first row of the block
  float* c;              // of the first row and column
  int64_t n_rows;        // that there are, of the block's
};

inline LaneBlock block_at(const RowLanes& p, int64_t row, int64_t col, int64_t n_rows) {
  const int64_t bytes = bytes_of(p.b_dtype, p.b_stride);
  return {static_cast<const char*>(p.b) + col * bytes, bytes, static_cast<const float*>(p.a) + row,
          p.c + row * kRowColumns + col, std::min(n_rows, p.m - row)};
}

// Sums [J][n_lanes] from or to c.
template <int J>
void take_sums(const LaneBlock& block, int64_t n_lanes, float* sums) {
  for (int64_t r = 0; r < block.n_rows; ++r) {
    for (int64_t j = 0; j < J; ++j) sums[j * n_lanes + r] = block.c[r * kRowColumns + j];
  }
}
template <int J>
void give_sums(const LaneBlock& block, int64_t n_lanes, const float* sums) {
  for (int64_t r = 0; r < block.n_rows; ++r) {
    for (int64_t j = 0; j < J; ++j) block.c[r * kRowColumns + j] = sums[j * n_lanes + r];
  }
}

// The lines behind a block's J columns.
template <int J>
LineFetch lines_behind(const RowLanes& p, const LaneBlock& block) {
  return {block.b + J * block.column_bytes, block.column_bytes, bytes_of(p.b_dtype, p.k)};
}

}  // namespace
}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kColumns = HWY_MAX_BYTES == 64 ? 16 : 8;  // sums that are in registers

// One element of f32, or two of bf16 one after the other, of each column.
template <Dtype dtype, int J, int V>
HWY_INLINE void add_word(const LaneBlock& block, const char* b, const float* a, int64_t a_stride,
                         VF (&sums)[V][J]) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  VF rows[V], next[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    rows[v] = hn::LoadU(F32(), a + v * lanes);
    if constexpr (dtype == Dtype::bf16) next[v] = hn::LoadU(F32(), a + a_stride + v * lanes);
  }
#pragma GCC unroll 16
  for (int j = 0; j < J; ++j) {
    uint32_t word;
    std::memcpy(&word, b + j * block.column_bytes, sizeof(word));
    const VU both = hn::Set(U32(), word);
    if constexpr (dtype == Dtype::f32) {
      const VF x = hn::BitCast(F32(), both);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[v][j] = hn::MulAdd(rows[v], x, sums[v][j]);
    } else {
      const VF first = hn::BitCast(F32(), hn::ShiftLeft<16>(both));
      const VF second = hn::BitCast(F32(), hn::And(both, hn::Set(U32(), 0xFFFF0000u)));
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[v][j] = hn::MulAdd(rows[v], first, sums[v][j]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[v][j] = hn::MulAdd(next[v], second, sums[v][j]);
    }
  }
}

template <Dtype dtype, int J, int V>
void step_block(const RowLanes& p, const LaneBlock& block) {
  constexpr int64_t kElems = dtype == Dtype::f32 ? 1 : 2, kWordBytes = 4;
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  HWY_ALIGN float own[J * V * HWY_MAX_BYTES / sizeof(float)] = {};
  if (p.sum == RowSum::carry) take_sums<J>(block, V * lanes, own);
  VF sums[V][J];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
    for (int j = 0; j < J; ++j) sums[v][j] = hn::LoadU(F32(), own + (j * V + v) * lanes);
  }
  const char* b = block.b;
  const float* a = block.a;
  LineFetch lines = lines_behind<J>(p, block);
  const int64_t n_words = p.k / kElems;
  for (int64_t begin = 0; begin < n_words; begin += kLineBytes / kWordBytes) {
    const int64_t end = std::min(n_words, begin + kLineBytes / kWordBytes);
    if (p.fetch == Fetch::next_columns) lines.template next<J>();
    for (int64_t i = begin; i < end; ++i, b += kWordBytes, a += kElems * p.a_stride)
      add_word<dtype, J, V>(block, b, a, p.a_stride, sums);
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
    for (int j = 0; j < J; ++j) hn::StoreU(sums[v][j], F32(), own + (j * V + v) * lanes);
  }
  give_sums<J>(block, V * lanes, own);
}

// Two vectors of rows at a time, then one: b comes from memory with the first.
template <Dtype dtype>
void step_lanes(RowLanes p) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  static_assert(kRowColumns % kColumns == 0);
  int64_t row = 0;
  for (; row + lanes < p.m; row += 2 * lanes, p.fetch = Fetch::none) {
    for (int64_t col = 0; col < kRowColumns; col += kColumns / 2)
      step_block<dtype, kColumns / 2, 2>(p, block_at(p, row, col, 2 * lanes));
  }
  for (; row < p.m; row += lanes, p.fetch = Fetch::none) {
    for (int64_t col = 0; col < kRowColumns; col += kColumns)
      step_block<dtype, kColumns, 1>(p, block_at(p, row, col, lanes));
  }
}

void StepLanes(const RowLanes& p) {
  if (p.b_dtype == Dtype::f32) return step_lanes<Dtype::f32>(p);
  step_lanes<Dtype::bf16>(p);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {
namespace {

HWY_EXPORT(StepLanes);

#define OCTET_DOTS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

// The same of pairs by the instruction itself, which takes denormals as zeros.
template <int J, int V>
OCTET_DOTS void dot_block(const RowLanes& p, const LaneBlock& block) {
  constexpr int64_t kPairBytes = 4;
  alignas(kLineBytes) float own[J * V * kLaneRows] = {};
  if (p.sum == RowSum::carry) take_sums<J>(block, V * kLaneRows, own);
  __m512 sums[V][J];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
    for (int j = 0; j < J; ++j) sums[v][j] = _mm512_load_ps(own + (j * V + v) * kLaneRows);
  }
  const char* b = block.b;
  const float* a = block.a;
  LineFetch lines = lines_behind<J>(p, block);
  for (int64_t begin = 0; begin < p.k / 2; begin += kLineBytes / kPairBytes) {
    const int64_t end = std::min(p.k / 2, begin + kLineBytes / kPairBytes);
    if (p.fetch == Fetch::next_columns) lines.template next<J>();
    for (int64_t i = begin; i < end; ++i, b += kPairBytes, a += p.a_stride) {
      __m512bh rows[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) rows[v] = (__m512bh)_mm512_loadu_si512(a + v * kLaneRows);
#pragma GCC unroll 16
      for (int j = 0; j < J; ++j) {
        int pair;
        std::memcpy(&pair, b + j * block.column_bytes, sizeof(pair));
        const auto column = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[v][j] = _mm512_dpbf16_ps(sums[v][j], rows[v], column);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
    for (int j = 0; j < J; ++j) _mm512_store_ps(own + (j * V + v) * kLaneRows, sums[v][j]);
  }
  give_sums<J>(block, V * kLaneRows, own);
}

void dot_lanes(RowLanes p) {
  constexpr int64_t kColumns = 16;
  int64_t row = 0;
  for (; row + kLaneRows < p.m; row += 2 * kLaneRows, p.fetch = Fetch::none) {
    for (int64_t col = 0; col < kRowColumns; col += kColumns / 2)
      dot_block<kColumns / 2, 2>(p, block_at(p, row, col, 2 * kLaneRows));
  }
  for (; row < p.m; row += kLaneRows, p.fetch = Fetch::none) {
    for (int64_t col = 0; col < kRowColumns; col += kColumns)
      dot_block<kColumns, 1>(p, block_at(p, row, col, kLaneRows));
  }
}

#undef OCTET_DOTS

}  // namespace

bool has_dot_lanes() {
  return __builtin_cpu_supports("avx512bf16") != 0;
}

void multiply_lanes(const RowLanes& product) {
  CHECK(product.a_stride % kLaneRows == 0 && product.m <= product.a_stride);
  CHECK(product.sum != RowSum::add && product.chain != DotChain::tiles);
  CHECK(product.b_dtype == Dtype::f32 || product.k % 2 == 0);
  if (product.chain == DotChain::steps) return HWY_DYNAMIC_DISPATCH(StepLanes)(product);
  CHECK(has_dot_lanes() && product.b_dtype == Dtype::bf16);
  dot_lanes(product);
}

}  // namespace octet::cpu
#endif
