#include "backends/cpu/gemm/pack_codes.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/pack_codes.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/codec/codec_decode-inl.h"
#include "base/error.h"
#include "formats/codec.h"

#ifndef OCTET_CPU_PACK_CODES_ARGS
#define OCTET_CPU_PACK_CODES_ARGS
namespace octet::cpu {
namespace {

// kCodeBlock x kCodeBlock codes, all of which may be read.
struct CodeBlock {
  const uint8_t* codes;
  int64_t stride;
};
// Destination of the block, in bf16: `rows` rows of `cols` elements, a multiple of 32.
struct BlockOut {
  uint16_t* x;
  int64_t stride, rows, cols;
};

// The loops over one block: pairs of rows of the block side by side, pairs of columns side by side,
// and the columns as rows; and one over n codes, a multiple of 64.
struct BlockLoops {
  void (*run)(const uint8_t* codes, int64_t n, uint16_t* x);
  void (*row_pairs)(const CodeBlock& block, const BlockOut& out);
  void (*column_pairs)(const CodeBlock& block, const BlockOut& out);
  void (*columns)(const CodeBlock& block, const BlockOut& out);
};

}  // namespace
}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX3

// The codes of an IEEE format that are no normal numbers, by their lower 5 bits: what is added to
// the code in bf16's place.
template <Dtype D>
constexpr SpecialTable make_addends() {
  constexpr FormatRow kRow = format_row(D);
  SpecialTable table = make_special_table<D>();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t low = i < (1u << kRow.fraction_bits) ? i : 0x60u | i;
    table.entry[i] = static_cast<uint16_t>(table.entry[i] - (low << (7 - kRow.fraction_bits)));
  }
  return table;
}
template <Dtype D>
constexpr SpecialTable kAddends = make_addends<D>();

struct alignas(64) MagnitudeTable {
  uint16_t entry[128];
};
template <Dtype D>
constexpr MagnitudeTable make_magnitudes() {
  MagnitudeTable table{};
  for (uint32_t i = 0; i < 128; ++i)
    table.entry[i] = static_cast<uint16_t>(bits_of(decode<D>(i)) >> 16);
  return table;
}
template <Dtype D>
constexpr MagnitudeTable kMagnitudes = make_magnitudes<D>();

HWY_INLINE __m512i words_of(int value) {
  return _mm512_set1_epi16(static_cast<int16_t>(value));
}

// 64 codes to bf16 in their order.
template <Dtype D>
struct Decoder {
  HWY_INLINE void operator()(__m512i codes, uint16_t* lo, uint16_t* hi) const {
    const __m512i low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(codes));
    const __m512i high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(codes, 1));
    if constexpr (format_row(D).rule == DecodeRule::ieee) {
      const uint64_t odd = specials(codes);
      _mm512_storeu_si512(lo, ieee(low, static_cast<__mmask32>(odd)));
      _mm512_storeu_si512(hi, ieee(high, static_cast<__mmask32>(odd >> 32)));
    } else {
      _mm512_storeu_si512(lo, looked_up(low));
      _mm512_storeu_si512(hi, looked_up(high));
    }
  }

 private:
  static constexpr FormatRow kRow = format_row(D);

  // Subnormal numbers, zero, Inf and NaN: from the first special code upwards, round to the last
  // subnormal.
  static HWY_INLINE __mmask64 specials(__m512i codes) {
    constexpr int kFirst = kRow.has_inf ? kRow.overflow_code : kRow.nan_code;
    constexpr int kAbove = 0x80 - kFirst;
    const __m512i turned =
        _mm512_and_si512(_mm512_add_epi8(codes, _mm512_set1_epi8(static_cast<char>(kAbove))),
                         _mm512_set1_epi8(0x7F));
    const auto end = static_cast<char>(kAbove + (1 << kRow.fraction_bits));
    return _mm512_cmplt_epu8_mask(turned, _mm512_set1_epi8(end));
  }
  // A shift and the bias for normal numbers. The words are the codes with their sign extended: the
  // shift brings it to the top.
  static HWY_INLINE __m512i ieee(__m512i words, __mmask32 special) {
    constexpr int kShift = 7 - kRow.fraction_bits;
    const __m512i table = _mm512_load_si512(kAddends<D>.entry);
    const __m512i size =
        _mm512_and_si512(_mm512_slli_epi16(words, kShift), words_of(0x8000 | (0x7F << kShift)));
    const __m512i addend =
        _mm512_mask_permutexvar_epi16(words_of((127 - kRow.bias) << 7), special, words, table);
    return _mm512_add_epi16(size, addend);
  }
  static HWY_INLINE __m512i looked_up(__m512i words) {
    const auto table = [](int i)
                           HWY_ATTR { return _mm512_load_si512(kMagnitudes<D>.entry + 32 * i); };
    const __m512i below = _mm512_permutex2var_epi16(table(0), words, table(1));
    const __m512i above = _mm512_permutex2var_epi16(table(2), words, table(3));
    const __mmask32 is_above = _mm512_test_epi16_mask(words, words_of(0x40));
    const __m512i size = _mm512_mask_mov_epi16(below, is_above, above);
    const __m512i x = _mm512_or_si512(size, _mm512_and_si512(words, words_of(0x8000)));
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(words, words_of(0xFF80));
    return _mm512_mask_mov_epi16(x, nan, words_of(bits_of(decode<D>(0x80)) >> 16));
  }
};

template <Dtype D>
void Run(const uint8_t* codes, int64_t n, uint16_t* x) {
  const Decoder<D> decode_64;
  for (int64_t i = 0; i < n; i += 64) {
    decode_64(_mm512_loadu_si512(codes + i), x + i, x + i + 32);
  }
}

template <Dtype D>
void RowPairs(const CodeBlock& block, const BlockOut& out) {
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const Decoder<D> decode_64;
  for (int64_t r = 0; r < out.rows; ++r) {
    const uint8_t* const at = block.codes + 2 * r * block.stride;
    const __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + block.stride);
    const __m512i lo = _mm512_unpacklo_epi8(a, b), hi = _mm512_unpackhi_epi8(a, b);
    uint16_t* const x = out.x + r * out.stride;
    decode_64(_mm512_permutex2var_epi64(lo, first, hi), x, x + 32);
    decode_64(_mm512_permutex2var_epi64(lo, second, hi), x + 64, x + 96);
  }
}

// 16 bytes of the rows `apart` from one another, one in each lane.
HWY_INLINE __m512i load_lanes(const uint8_t* at, int64_t apart) {
  const auto part = [&](int i) HWY_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + i * apart));
  };
  __m512i x = _mm512_castsi128_si512(part(0));
  x = _mm512_inserti32x4(x, part(1), 1);
  x = _mm512_inserti32x4(x, part(2), 2);
  return _mm512_inserti32x4(x, part(3), 3);
}

// In each lane 8 rows of 8 words, or 16 of 16 bytes: interleaving the first half of the rows with
// the second transposes them after log2(N) times.
template <int N>
HWY_INLINE void interleave_halves(const __m512i (&from)[N], __m512i (&to)[N]) {
  HWY_UNROLL(8) for (int i = 0; i < N / 2; ++i) {
    if constexpr (N == 8) {
      to[2 * i] = _mm512_unpacklo_epi16(from[i], from[i + N / 2]);
      to[2 * i + 1] = _mm512_unpackhi_epi16(from[i], from[i + N / 2]);
    } else {
      to[2 * i] = _mm512_unpacklo_epi8(from[i], from[i + N / 2]);
      to[2 * i + 1] = _mm512_unpackhi_epi8(from[i], from[i + N / 2]);
    }
  }
}

template <Dtype D>
void ColumnPairs(const CodeBlock& block, const BlockOut& out) {
  const Decoder<D> decode_64;
  for (int64_t r = 0; r < out.rows; r += 8) {
    for (int64_t half = 0; half < 2; ++half) {
      __m512i a[8], b[8];
      const uint8_t* const at = block.codes + 32 * half * block.stride + 2 * r;
      HWY_UNROLL(8) for (int i = 0; i < 8; ++i) {
        a[i] = load_lanes(at + i * block.stride, 8 * block.stride);
      }
      interleave_halves(a, b);
      interleave_halves(b, a);
      interleave_halves(a, b);
      HWY_UNROLL(8) for (int i = 0; i < 8; ++i) {
        uint16_t* const x = out.x + (r + i) * out.stride + 64 * half;
        decode_64(b[i], x, x + 32);
      }
    }
  }
}

template <Dtype D>
void Columns(const CodeBlock& block, const BlockOut& out) {
  const Decoder<D> decode_64;
  uint16_t unread[32];
  for (int64_t r = 0; r < out.rows; r += 16) {
    __m512i a[16], b[16];
    HWY_UNROLL(16) for (int i = 0; i < 16; ++i) {
      a[i] = load_lanes(block.codes + i * block.stride + r, 16 * block.stride);
    }
    interleave_halves(a, b);
    interleave_halves(b, a);
    interleave_halves(a, b);
    interleave_halves(b, a);
    const int64_t n = std::min<int64_t>(16, out.rows - r);
    for (int i = 0; i < n; ++i) {
      uint16_t* const x = out.x + (r + i) * out.stride;
      decode_64(a[i], x, out.cols == kCodeBlock ? x + 32 : unread);
    }
  }
}

#else

template <Dtype D>
uint16_t decoded(uint8_t code) {
  return static_cast<uint16_t>(bits_of(decode<D>(code)) >> 16);
}

template <Dtype D>
void Run(const uint8_t* codes, int64_t n, uint16_t* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = decoded<D>(codes[i]);
}

template <Dtype D>
void RowPairs(const CodeBlock& block, const BlockOut& out) {
  for (int64_t r = 0; r < out.rows; ++r) {
    for (int64_t i = 0; i < 2 * kCodeBlock; ++i) {
      out.x[r * out.stride + i] = decoded<D>(block.codes[(2 * r + i % 2) * block.stride + i / 2]);
    }
  }
}

template <Dtype D>
void ColumnPairs(const CodeBlock& block, const BlockOut& out) {
  for (int64_t r = 0; r < out.rows; ++r) {
    for (int64_t i = 0; i < 2 * kCodeBlock; ++i) {
      out.x[r * out.stride + i] = decoded<D>(block.codes[i / 2 * block.stride + 2 * r + i % 2]);
    }
  }
}

template <Dtype D>
void Columns(const CodeBlock& block, const BlockOut& out) {
  for (int64_t r = 0; r < out.rows; ++r) {
    for (int64_t i = 0; i < out.cols; ++i)
      out.x[r * out.stride + i] = decoded<D>(block.codes[i * block.stride + r]);
  }
}

#endif

template <Dtype D>
BlockLoops loops_of() {
  return {Run<D>, RowPairs<D>, ColumnPairs<D>, Columns<D>};
}

BlockLoops Loops(Dtype format) {
  return visit_format(format, []<Dtype D>() -> BlockLoops {
    if constexpr (is_gemm_operand(D)) return loops_of<D>();
    return {};
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(Loops);

namespace {

BlockLoops loops(Dtype format) {
  CHECK(is_gemm_operand(format));
  return HWY_DYNAMIC_DISPATCH(Loops)(format);
}

// The block at (row, col) of a matrix of codes; what lies beyond is zero, and the block stands in
// `stage` then.
struct Blocks {
  const uint8_t* codes;
  int64_t stride, rows, cols;
  CodeBlock at(int64_t row, int64_t col, uint8_t* stage) const {
    const uint8_t* const from = codes + row * stride + col;
    const int64_t n_rows = std::min(kCodeBlock, rows - row);
    const int64_t n_cols = std::min(kCodeBlock, cols - col);
    if (n_rows == kCodeBlock && n_cols == kCodeBlock) return {from, stride};
    std::memset(stage, 0, kCodeBlock * kCodeBlock);
    for (int64_t r = 0; r < n_rows; ++r)
      std::memcpy(stage + r * kCodeBlock, from + r * stride, static_cast<size_t>(n_cols));
    return {stage, kCodeBlock};
  }
};

}  // namespace

void pack_code_panel(const MatrixIn& codes, const PanelLayout& layout, const PanelRange& range,
                     bool last, uint16_t* dst) {
  CHECK(layout.interleave == 2 && layout.width == kCodeBlock);
  CHECK(range.k_begin % kCodeBlock == 0 && (last || range.k_end % kCodeBlock == 0));
  alignas(64) uint8_t stage[kCodeBlock * kCodeBlock];
  const BlockLoops loop = loops(codes.data.dtype);
  const bool by_column = codes.transpose == Transpose::yes;
  const auto* const data = static_cast<const uint8_t*>(codes.data.data);
  const Blocks blocks = by_column ? Blocks{data, codes.stride, range.n_end, range.k_end}
                                  : Blocks{data, codes.stride, range.k_end, range.n_end};
  const int64_t end = last ? layout.k_padded : range.k_end, row = 2 * kCodeBlock;
  for (int64_t k = range.k_begin; k < end; k += kCodeBlock) {
    const BlockOut out{dst + k / 2 * row, row, std::min(kCodeBlock, end - k) / 2, row};
    if (by_column) {
      loop.column_pairs(blocks.at(range.n_begin, k, stage), out);
    } else {
      loop.row_pairs(blocks.at(k, range.n_begin, stage), out);
    }
  }
}

namespace {

void pack_code_row(const BlockLoops& loop, const uint8_t* codes, const CodeRows& range,
                   uint16_t* dst) {
  const int64_t n = range.k_end - range.k_begin, whole = n / kCodeBlock * kCodeBlock;
  const int64_t padded = range.end - range.k_begin;
  loop.run(codes, whole, dst);
  if (whole == padded) return;
  alignas(64) uint8_t rest[kCodeBlock] = {};
  alignas(64) uint16_t x[kCodeBlock];
  std::memcpy(rest, codes + whole, static_cast<size_t>(n - whole));
  loop.run(rest, kCodeBlock, x);
  std::memcpy(dst + whole, x, static_cast<size_t>(padded - whole) * sizeof(uint16_t));
}

}  // namespace

void pack_code_rows(const MatrixIn& codes, const CodeRows& range, uint16_t* dst) {
  const BlockLoops loop = loops(codes.data.dtype);
  const auto* const data = static_cast<const uint8_t*>(codes.data.data);
  if (codes.transpose == Transpose::no) {
    for (int64_t r = range.row_begin; r < range.row_end; ++r, dst += range.stride)
      pack_code_row(loop, data + r * codes.stride + range.k_begin, range, dst);
    return;
  }
  alignas(64) uint8_t stage[kCodeBlock * kCodeBlock];
  const Blocks blocks{data, codes.stride, range.k_end, range.row_end};
  for (int64_t k = range.k_begin; k < range.end; k += kCodeBlock) {
    for (int64_t r = range.row_begin; r < range.row_end; r += kCodeBlock) {
      const BlockOut out{dst + (r - range.row_begin) * range.stride + k - range.k_begin,
                         range.stride, std::min(kCodeBlock, range.row_end - r),
                         std::min(kCodeBlock, range.end - k)};
      loop.columns(blocks.at(k, r, stage), out);
    }
  }
}

}  // namespace octet::cpu
#endif
