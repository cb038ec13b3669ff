#include "backends/cpu/gemm/pack.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/pack.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"
#include "backends/cpu/elementwise/quantized_matrix.h"
#include "base/error.h"

#ifndef OCTET_CPU_PACK_ARGS
#define OCTET_CPU_PACK_ARGS
namespace octet::cpu {
namespace {

// Strides in bytes, so that pairs of bf16 can be moved as one 4-byte element whatever the row
// length.
struct ByteMatrix {
  const char* src;
  char* dst;
  int64_t src_stride, dst_stride, rows, cols;
};

}  // namespace
}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

template <int kBytes>
struct UintOf;
template <>
struct UintOf<1> {
  using Type = uint8_t;
};
template <>
struct UintOf<2> {
  using Type = uint16_t;
};
template <>
struct UintOf<4> {
  using Type = uint32_t;
};

// A cache line wide: reads and writes of the two matrices are whole lines, whatever their strides.
template <int kBytes>
constexpr int64_t kSide = 64 / kBytes;

template <typename T>
void transpose_elements(const ByteMatrix& m, T* dst, int64_t dst_stride) {
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.cols; ++c) {
      std::memcpy(dst + c * dst_stride + r, m.src + r * m.src_stride + c * sizeof(T), sizeof(T));
    }
  }
}

// dst[c][r] = src[r][c] for one kSide x kSide tile. Interleaving rows i and i + L/2, log2(L) times,
// transposes L x L.
template <int kBytes>
void transpose_tile(const ByteMatrix& m, typename UintOf<kBytes>::Type* dst) {
  using T = typename UintOf<kBytes>::Type;
  constexpr int64_t side = kSide<kBytes>;
#if HWY_TARGET == HWY_SCALAR
  transpose_elements<T>(m, dst, side);
#else
  constexpr int kLanes = 16 / kBytes;
  const hn::Simd<T, kLanes, 0> d;
  using V = hn::Vec<decltype(d)>;
  for (int64_t r = 0; r < m.rows; r += kLanes) {
    for (int64_t c = 0; c < m.cols; c += kLanes) {
      V a[kLanes], b[kLanes];
      const char* const from = m.src + r * m.src_stride + c * kBytes;
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        a[i] = hn::LoadU(d, reinterpret_cast<const T*>(from + i * m.src_stride));
      }
#pragma GCC unroll 16
      for (int width = 1; width < kLanes; width *= 2) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes / 2; ++i) {
          b[2 * i] = hn::InterleaveLower(d, a[i], a[i + kLanes / 2]);
          b[2 * i + 1] = hn::InterleaveUpper(d, a[i], a[i + kLanes / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) a[i] = b[i];
      }
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) hn::StoreU(a[i], d, dst + (c + i) * side + r);
    }
  }
#endif
}

// Writes `rows` rows of a tile, as they are or widened from bf16 to f32.
template <typename T, bool widen>
HWY_INLINE void write_tile(const T* tile, int64_t side, const ByteMatrix& m) {
  for (int64_t c = 0; c < m.cols; ++c) {
    char* const to = m.dst + c * m.dst_stride;
    if constexpr (widen) {
      const In from{tile + c * side, Dtype::bf16};
      const Out out{to, Dtype::f32};
      for_lanes(0, m.rows,
                [&](int64_t i, auto io) HWY_ATTR { store(io, load(io, from, i), out, i); });
    } else if (m.rows == side) {
      std::memcpy(to, tile + c * side, 64);  // a constant size: one vector move, no call
    } else {
      std::memcpy(to, tile + c * side, static_cast<size_t>(m.rows) * sizeof(T));
    }
  }
}

template <int kBytes, bool widen>
void transpose_matrix(const ByteMatrix& m) {
  using T = typename UintOf<kBytes>::Type;
  constexpr int64_t side = kSide<kBytes>;
  constexpr int64_t out_bytes = widen ? 4 : kBytes, kLanes = 16 / kBytes;
  HWY_ALIGN T tile[side * side];
  for (int64_t r = 0; r < m.rows; r += side) {
    for (int64_t c = 0; c < m.cols; c += side) {
      const ByteMatrix part{m.src + r * m.src_stride + c * kBytes,
                            m.dst + c * m.dst_stride + r * out_bytes,
                            m.src_stride,
                            m.dst_stride,
                            std::min(side, m.rows - r),
                            std::min(side, m.cols - c)};
      if (part.rows % kLanes == 0 && part.cols % kLanes == 0) {
        transpose_tile<kBytes>(part, tile);
      } else {
        transpose_elements<T>(part, tile, side);
      }
      write_tile<T, widen>(tile, side, part);
    }
  }
}

void TransposeBytes(const ByteMatrix& m, int elem_bytes, bool widen) {
  if (widen) return transpose_matrix<2, true>(m);
  if (elem_bytes == 1) return transpose_matrix<1, false>(m);
  if (elem_bytes == 2) return transpose_matrix<2, false>(m);
  transpose_matrix<4, false>(m);
}

// Pairs the elements of two rows: dst[2 i] = a[i], dst[2 i + 1] = b[i] (0 where b is absent).
void InterleavePair(const uint16_t* a, const uint16_t* b, uint16_t* dst, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(U32()));
  for (; i + lanes <= n; i += lanes) {
    VU pair = hn::PromoteTo(U32(), hn::LoadU(U16(), a + i));
    if (b != nullptr) {
      pair = hn::Or(pair, hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(U16(), b + i))));
    }
    const hn::Repartition<uint16_t, U32> d16;
    hn::StoreU(hn::BitCast(d16, pair), d16, dst + 2 * i);
  }
#endif
  for (; i < n; ++i) {
    dst[2 * i] = a[i];
    dst[2 * i + 1] = b != nullptr ? b[i] : uint16_t{0};
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(TransposeBytes);
HWY_EXPORT(InterleavePair);

namespace {

const char* at(const MatrixIn& m, int64_t row, int64_t col) {
  return static_cast<const char*>(m.data.data) + bytes_of(m.data.dtype, row * m.stride + col);
}

void zero(char* from, char* to) {
  std::memset(from, 0, static_cast<size_t>(to - from));
}

void copy_row(In x, Out y, int64_t n) {
  if (x.dtype == y.dtype) {
    std::memcpy(y.data, x.data, static_cast<size_t>(bytes_of(x.dtype, n)));
  } else {
    convert_span(x, n, y);
  }
}

// interleave == 1: rows of `width` elements.
void pack_as_is(const MatrixIn& b, const PanelLayout& layout, const PanelRange& r, char* dst) {
  const int64_t row_bytes = bytes_of(layout.dtype, layout.width), n = r.n_end - r.n_begin;
  if (b.transpose == Transpose::yes) {
    const int64_t elem = bytes_of(b.data.dtype, 1);
    HWY_DYNAMIC_DISPATCH(TransposeBytes)
    ({at(b, r.n_begin, r.k_begin), dst + r.k_begin * row_bytes, b.stride * elem, row_bytes, n,
      r.k_end - r.k_begin},
     elem, b.data.dtype != layout.dtype);
  } else {
    for (int64_t k = r.k_begin; k < r.k_end; ++k) {
      copy_row({at(b, k, r.n_begin), b.data.dtype}, {dst + k * row_bytes, layout.dtype}, n);
    }
  }
  for (int64_t k = r.k_begin; n < layout.width && k < r.k_end; ++k) {
    zero(dst + k * row_bytes + bytes_of(layout.dtype, n), dst + (k + 1) * row_bytes);
  }
}

// interleave == 2: pairs of bf16 rows.
void pack_pairs(const MatrixIn& b, const PanelLayout& layout, const PanelRange& r, char* dst) {
  const int64_t row_bytes = layout.width * 4, n = r.n_end - r.n_begin;
  const int64_t whole = (r.k_end - r.k_begin) / 2;
  char* const to = dst + r.k_begin / 2 * row_bytes;
  if (b.transpose == Transpose::yes) {
    HWY_DYNAMIC_DISPATCH(TransposeBytes)
    ({at(b, r.n_begin, r.k_begin), to, b.stride * 2, row_bytes, n, whole}, 4, false);
    for (int64_t i = 0; r.k_end - r.k_begin > 2 * whole && i < n; ++i) {
      char* const pair = to + whole * row_bytes + i * 4;
      std::memcpy(pair, at(b, r.n_begin + i, r.k_end - 1), 2);
      std::memset(pair + 2, 0, 2);
    }
  } else {
    const auto interleave = HWY_DYNAMIC_DISPATCH(InterleavePair);
    const auto* row = reinterpret_cast<const uint16_t*>(at(b, r.k_begin, r.n_begin));
    for (int64_t k = r.k_begin; k < r.k_end; k += 2, row += 2 * b.stride) {
      interleave(row, k + 1 < r.k_end ? row + b.stride : nullptr,
                 reinterpret_cast<uint16_t*>(dst + k / 2 * row_bytes), n);
    }
  }
  for (int64_t k = r.k_begin / 2; n < layout.width && 2 * k < r.k_end; ++k) {
    zero(dst + k * row_bytes + n * 4, dst + (k + 1) * row_bytes);
  }
}

}  // namespace

void pack_panel(const MatrixIn& b, const PanelLayout& layout, const PanelRange& range, bool last,
                void* dst) {
  char* const to = static_cast<char*>(dst);
  if (layout.interleave == 1) {
    pack_as_is(b, layout, range, to);
  } else {
    CHECK(layout.interleave == 2 && b.data.dtype == Dtype::bf16);
    pack_pairs(b, layout, range, to);
  }
  if (!last) return;
  const int64_t group_bytes = bytes_of(layout.dtype, layout.width * layout.interleave);
  zero(to + ceil_div(range.k_end, layout.interleave) * group_bytes,
       to + layout.k_padded / layout.interleave * group_bytes);
}

void pack_rows(const MatrixIn& a, const RowRange& range, Out dst) {
  const int64_t elem = bytes_of(dst.dtype, 1);
  const int64_t row_bytes = range.cols_padded * elem, rows = range.row_end - range.row_begin;
  char* const to = static_cast<char*>(dst.data);
  if (a.transpose == Transpose::yes) {
    const int64_t from = bytes_of(a.data.dtype, 1);
    HWY_DYNAMIC_DISPATCH(TransposeBytes)
    ({at(a, 0, range.row_begin), to, a.stride * from, row_bytes, range.cols, rows}, from,
     a.data.dtype != dst.dtype);
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      copy_row({at(a, range.row_begin + r, 0), a.data.dtype}, {to + r * row_bytes, dst.dtype},
               range.cols);
    }
  }
  for (int64_t r = 0; range.cols < range.cols_padded && r < rows; ++r) {
    zero(to + r * row_bytes + range.cols * elem, to + (r + 1) * row_bytes);
  }
}

void transpose_block(const TransposeArgs& a) {
  const int elem = a.elem_bytes;
  HWY_DYNAMIC_DISPATCH(TransposeBytes)
  ({static_cast<const char*>(a.src), static_cast<char*>(a.dst), a.src_stride * elem,
    a.dst_stride * elem, a.rows, a.cols},
   elem, false);
}

}  // namespace octet::cpu
#endif
