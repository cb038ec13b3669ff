#include "backends/cpu/gemm/tensor_gemm.h"

#include <array>
#include <utility>
#include <vector>

#include "backends/cpu/gemm/tensor_tile.h"
#include "base/error.h"
#include "formats/codec.h"

namespace octet::cpu {
namespace {

constexpr int64_t kSumRows = 128, kSumColumns = 128;
constexpr int64_t kSumDepth = 256;  // that is packed at a time: whole chains of promoted sums
constexpr int64_t kProductsOfScale = 128;

// Effects on a sum of values that are not finite.
enum Special : uint8_t { kFinite = 0, kInfinite = 1, kNan = 2 };

// A factor, and how its values become those that are multiplied.
struct SummedFactor {
  const TensorType& type;
  const void* data;
  const void* scales;
  Dtype scale_dtype;
  bool k_is_last;  // in memory
  int64_t outers, k;
  bool in_factors;  // scales of blocks multiply the values
  int lowest, fraction;

  int64_t at(int64_t outer, int64_t deep) const {
    return k_is_last ? outer * k + deep : deep * outers + outer;
  }
  float scale_at(size_t i) const {
    if (scales == nullptr) return 1;
    if (scale_dtype == Dtype::f32) return static_cast<const float*>(scales)[i];
    return dtype_bytes(scale_dtype) == 1
               ? decode(scale_dtype, static_cast<const uint8_t*>(scales)[i])
               : decode(scale_dtype, static_cast<const uint16_t*>(scales)[i]);
  }
  float scale_of(int64_t outer, int64_t deep) const {
    return scale_at(scale_index(type, static_cast<size_t>(at(outer, deep))));
  }
  SumFactor value(float x) const { return sum_factor(x, lowest, fraction); }
};

// Operand elements as the sums see them and as they are packed.
class SummedOperand {
 public:
  SummedOperand(const SummedFactor& factor, const TensorSums& rule, PackedSide side)
      : f_(factor), rule_(rule), side_(side) {
    if (!has_codes()) return;
    for (uint32_t code = 0; code < 256; ++code) {
      const float value = decode(f_.type.dtype, code);
      codes_[code] = {value, element(f_.value(value))};
    }
  }
  const SummedFactor& factor() const { return f_; }

  struct Element {
    SumFactor factor;
    PackedWords words;
    uint8_t special;  // Special
  };
  Element at(int64_t outer, int64_t deep) const {
    const int64_t i = f_.at(outer, deep);
    if (has_codes()) {
      const Code& code = codes_[static_cast<const uint8_t*>(f_.data)[i]];
      return f_.in_factors ? element(f_.value(code.value * f_.scale_of(outer, deep)))
                           : code.element;
    }
    const uint16_t bits = static_cast<const uint16_t*>(f_.data)[i];
    return element(f_.value(f_.type.dtype == Dtype::bf16 ? decode<Dtype::bf16>(bits)
                                                         : decode<Dtype::fp16>(bits)));
  }

 private:
  struct Code {
    float value;
    Element element;
  };
  bool has_codes() const { return dtype_bytes(f_.type.dtype) == 1; }
  Element element(SumFactor factor) const {
    if (factor.exponent != SumFactor::kNotFinite)
      return {factor, packed_words(rule_, side_, factor), kFinite};
    const auto special = factor.significand == 0 ? kNan : kInfinite;
    return {factor, packed_words(rule_, side_, {}), special};
  }

  SummedFactor f_;
  const TensorSums& rule_;
  PackedSide side_;
  std::array<Code, 256> codes_;
};

// Overflow of 16 bits is infinite, as cards store it.
uint32_t encode_half(Dtype dtype, float x) {
  return encode(dtype, x, Rounding::near, {.saturate = false});
}
float load_value(In x, int64_t i) {
  if (x.dtype == Dtype::f32) return static_cast<const float*>(x.data)[i];
  return decode(x.dtype, static_cast<const uint16_t*>(x.data)[i]);
}
void store_value(Out y, int64_t i, float x) {
  if (y.dtype == Dtype::f32) {
    static_cast<float*>(y.data)[i] = x;
  } else if (dtype_bytes(y.dtype) == 2) {
    static_cast<uint16_t*>(y.data)[i] = static_cast<uint16_t>(encode_half(y.dtype, x));
  } else {
    static_cast<uint8_t*>(y.data)[i] = static_cast<uint8_t>(encode(y.dtype, x));
  }
}

// A thread's scratch.
struct SumScratch {
  char *a, *b;                          // packed
  float *sums, *totals;                 // [panels][kSumRows][kTensorColumns]
  std::array<uint8_t, kSumRows>* rows;  // Special
  std::array<uint8_t, kSumColumns>* cols;

  static size_t bytes(const TensorSums& rule) {
    return static_cast<size_t>(packed(rule) * (kSumRows + kSumColumns)) +
           2 * sizeof(float) * kSumRows * kSumColumns + kSumRows + kSumColumns;
  }
  static int64_t packed(const TensorSums& rule) {
    return packed_bytes(tensor_packing(rule)) * kSumDepth;
  }
  SumScratch(const TensorSums& rule, void* scratch, int thread) {
    char* at = static_cast<char*>(scratch) + static_cast<size_t>(thread) * bytes(rule);
    const auto take = [&](int64_t n) { return std::exchange(at, at + n); };
    a = take(packed(rule) * kSumRows), b = take(packed(rule) * kSumColumns);
    sums = reinterpret_cast<float*>(take(4 * kSumRows * kSumColumns));
    totals = reinterpret_cast<float*>(take(4 * kSumRows * kSumColumns));
    rows = reinterpret_cast<decltype(rows)>(take(kSumRows));
    cols = reinterpret_cast<decltype(cols)>(take(kSumColumns));
  }
};

// Elements [first, first + n) of a factor's outer axis, [begin, end) of k.
struct Piece {
  PackedSide side;
  int64_t first, n, begin, end;
};
// Rows of a panel that begins at a column, and where in k the sums began.
struct Chain {
  int64_t first_row, n_rows, col, deep;
};

// Operands and results of one launch.
struct SumLaunch {
  const TensorGemmSpec& spec;
  const TensorGemmArgs& args;
  SummedOperand a, b;
  float alpha;

  const TensorSums& rule() const { return *spec.gemm.rule; }
  bool is_promoted() const { return spec.gemm.mode == SumMode::promoted && rule().chain > 0; }
  bool has_blocks() const { return spec.gemm.scales == TensorGemm::Scales::blocks; }
  // Products whose sum is finished before the next ones begin; 0: all.
  int64_t chain() const {
    return has_blocks() ? kProductsOfScale : is_promoted() ? rule().chain : 0;
  }

  void multiply_tile(int64_t first_row, int64_t first_col, const SumScratch& own) const;
  void pack(const SummedOperand& from, const Piece& piece, char* to, uint8_t* specials) const;
  void finish_chain(const Chain& chain, float* sums, float* totals) const;
  float special_sum_of(int64_t row, int64_t col, uint8_t kinds) const;
  void write(int64_t row, int64_t col, float sum) const;
};

// Zeros behind the piece fill its last blocks and panel.
void SumLaunch::pack(const SummedOperand& from, const Piece& piece, char* to,
                     uint8_t* specials) const {
  const auto [side, first, n, begin, end] = piece;
  const int64_t block = rule().block, outers = side == PackedSide::a ? 1 : kTensorColumns;
  const int64_t block_bytes = packed_block_bytes(rule(), side), plane = plane_elems(rule(), side);
  const int64_t n_blocks = ceil_div(end - begin, block);
  const TensorPacking packing = tensor_packing(rule());
  const PackedWords zero = packed_words(rule(), side, {});
  for (int64_t o = 0; o < round_up(n, outers); ++o) {
    char* to_block = to + o / outers * (kSumDepth / block) * block_bytes;
    for (int64_t i = 0; i < n_blocks; ++i, to_block += block_bytes) {
      for (int64_t k = 0; k < block; ++k) {
        const int64_t deep = begin + i * block + k;
        PackedWords words = zero;
        if (o < n && deep < end) {
          const auto element = from.at(first + o, deep);
          specials[o] |= element.special;
          words = element.words;
        }
        write_packed(packing, {to_block, plane, packed_index(rule(), side, o % outers, k)}, words);
      }
    }
  }
}

void SumLaunch::finish_chain(const Chain& chain, float* sums, float* totals) const {
  const auto [first_row, n_rows, col, deep] = chain;
  for (int64_t r = 0; r < n_rows; ++r) {
    const float scale_a = has_blocks() ? a.factor().scale_of(first_row + r, deep) : 1;
    for (int64_t j = 0; j < kTensorColumns; ++j) {
      const int64_t at = r * kTensorColumns + j;
      if (!has_blocks()) {
        totals[at] += sums[at];
      } else if (col + j < spec.n) {
        totals[at] = add_scaled_block(BlockPair::line_and_square, totals[at], sums[at], scale_a,
                                      b.factor().scale_of(col + j, deep));
      }
      sums[at] = 0;
    }
  }
}

// By the rule itself, of a row and a column with values that are not finite.
float SumLaunch::special_sum_of(int64_t row, int64_t col, uint8_t kinds) const {
  if ((kinds & kNan) != 0) return float_of(kSumNan);
  const int64_t step = chain() == 0 ? spec.k : chain();
  constexpr int64_t kMaxBlock = 32;
  float total = 0;
  for (int64_t first = 0; first < spec.k; first += step) {
    float sum = 0;
    const int64_t end = std::min(spec.k, first + step);
    for (int64_t i = first; i < end; i += rule().block) {
      const auto n = static_cast<int>(std::min<int64_t>(rule().block, end - i));
      SumFactor x[kMaxBlock], y[kMaxBlock];
      for (int j = 0; j < n; ++j) x[j] = a.at(row, i + j).factor, y[j] = b.at(col, i + j).factor;
      sum = add_block(rule(), x, y, n, sum);
    }
    total = chain() == 0    ? sum
            : !has_blocks() ? total + sum
                            : add_scaled_block(BlockPair::line_and_square, total, sum,
                                               a.factor().scale_of(row, first),
                                               b.factor().scale_of(col, first));
  }
  return total;
}

void SumLaunch::write(int64_t row, int64_t col, float sum) const {
  const int64_t at = row * spec.n + col;
  const In c = args.bias ? args.bias : args.addend;
  const int64_t c_at = args.bias ? col : at;
  float y = 0;
  if (spec.gemm.scales == TensorGemm::Scales::rows) {
    y = scaled_by_rows(sum, a.factor().scale_of(row, 0), b.factor().scale_of(col, 0));
  } else if (has_blocks()) {
    y = c ? sum + load_value(c, c_at) : sum;
  } else if (!c) {
    y = octet::scaled_sum(alpha, sum, 0);
  } else if (args.bias) {
    y = biased_sum(alpha, sum, load_value(c, c_at));
  } else if (c.data == args.y.data || c.dtype != args.y.dtype) {
    // Sums of another type than the addend's are made apart, in f32.
    const Dtype stored = c.dtype == args.y.dtype ? c.dtype : Dtype::f32;
    const float own = alpha * sum;
    y = (stored == Dtype::f32 ? own : decode(stored, encode_half(stored, own))) +
        load_value(c, c_at);
  } else {
    y = octet::scaled_sum(alpha, sum, load_value(c, c_at));
  }
  store_value(args.y, at, y);
}

void SumLaunch::multiply_tile(int64_t first_row, int64_t first_col, const SumScratch& own) const {
  const int64_t n_rows = std::min(kSumRows, spec.m - first_row);
  const int64_t n_cols = std::min(kSumColumns, spec.n - first_col);
  const int64_t n_panels = ceil_div(n_cols, kTensorColumns), block = rule().block;
  const int64_t per_panel = kSumRows * kTensorColumns;
  std::fill_n(own.sums, kSumRows * kSumColumns, 0.0f);
  std::fill_n(own.totals, kSumRows * kSumColumns, 0.0f);
  own.rows->fill(kFinite), own.cols->fill(kFinite);
  const int64_t a_bytes = packed_block_bytes(rule(), PackedSide::a);
  const int64_t b_bytes = packed_block_bytes(rule(), PackedSide::b);
  for (int64_t begin = 0; begin < spec.k; begin += kSumDepth) {
    const int64_t end = std::min(spec.k, begin + kSumDepth);
    pack(a, {PackedSide::a, first_row, n_rows, begin, end}, own.a, own.rows->data());
    pack(b, {PackedSide::b, first_col, n_cols, begin, end}, own.b, own.cols->data());
    const int64_t step = chain() == 0 ? end - begin : chain();
    for (int64_t panel = 0; panel < n_panels; ++panel) {
      float* const sums = own.sums + panel * per_panel;
      for (int64_t at = begin; at < end; at += step) {
        const int64_t first = (at - begin) / block;
        const int64_t n_blocks = ceil_div(std::min(end - at, step), block);
        add_tensor_blocks({.rule = &rule(),
                           .a = own.a + first * a_bytes,
                           .b = own.b + (panel * (kSumDepth / block) + first) * b_bytes,
                           .sums = sums,
                           .rows = n_rows,
                           .n_blocks = n_blocks,
                           .a_stride = kSumDepth / block * a_bytes,
                           .plain = spec.plain});
        if (chain() > 0)
          finish_chain({first_row, n_rows, first_col + panel * kTensorColumns, at}, sums,
                       own.totals + panel * per_panel);
      }
    }
  }
  const float* const results = chain() > 0 ? own.totals : own.sums;
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t j = 0; j < n_cols; ++j) {
      const auto kinds = static_cast<uint8_t>((*own.rows)[r] | (*own.cols)[j]);
      const float sum =
          kinds == kFinite
              ? results[j / kTensorColumns * per_panel + r * kTensorColumns + j % kTensorColumns]
              : special_sum_of(first_row + r, first_col + j, kinds);
      write(first_row + r, first_col + j, sum);
    }
  }
}

}  // namespace

size_t TensorSumGemm::scratch_bytes() const {
  return static_cast<size_t>(n_threads_) * SumScratch::bytes(*spec_.gemm.rule);
}

void TensorSumGemm::launch(const TensorGemmArgs& args, ThreadPool& pool) const {
  CHECK(pool.n_threads() <= n_threads_);
  const TensorGemmSpec& s = spec_;
  const auto operand = [&](PackedSide side) {
    const bool is_a = side == PackedSide::a;
    const TensorType& type = is_a ? s.a : s.b;
    const Dtype multiplied = s.gemm.rule->fp8 ? type.dtype : s.gemm.factors;
    return SummedOperand({.type = type,
                          .data = is_a ? args.a : args.b,
                          .scales = is_a ? args.scale_a : args.scale_b,
                          .scale_dtype = is_a ? s.scale_a : s.scale_b,
                          .k_is_last = is_a ? !s.trans_a : s.trans_b,
                          .outers = is_a ? s.m : s.n,
                          .k = s.k,
                          .in_factors = !s.gemm.rule->fp8 && !scale_tile(type).is_all(),
                          .lowest = lowest_exponent(multiplied),
                          .fraction = s.gemm.rule->fraction_of_factors},
                         *s.gemm.rule, side);
  };
  SumLaunch launch{.spec = s,
                   .args = args,
                   .a = operand(PackedSide::a),
                   .b = operand(PackedSide::b),
                   .alpha = 1};
  for (const SummedOperand* one : {&launch.a, &launch.b}) {
    if (scale_tile(one->factor().type).is_all()) launch.alpha *= one->factor().scale_at(0);
  }
  if (args.scale_y != nullptr) launch.alpha *= 1 / *args.scale_y;
  const int64_t n_cols = ceil_div(s.n, kSumColumns);
  for_tiles(pool, ceil_div(s.m, kSumRows) * n_cols, [&](int64_t tile, int thread) {
    const SumScratch own(*s.gemm.rule, args.scratch, thread);
    launch.multiply_tile(tile / n_cols * kSumRows, tile % n_cols * kSumColumns, own);
  });
}

}  // namespace octet::cpu
