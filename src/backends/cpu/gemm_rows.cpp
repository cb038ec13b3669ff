#include "backends/cpu/gemm_rows.h"

#include "backends/cpu/codec/codec.h"
#include "backends/cpu/tile_gemm.h"
#include "base/error.h"
#include "formats/table.h"

namespace octet::cpu {
namespace {

constexpr int64_t kDepth = 128;  // rows of op(B) that are packed at a time
constexpr int64_t kPanelElems = kDepth * kRowColumns;

int64_t aligned(int64_t bytes) {
  return round_up(bytes, 64);
}

}  // namespace

GemmRows::GemmRows(const GemmSpec& spec, const SumOrder& order, int n_threads)
    : spec_(spec), order_(order), n_threads_(n_threads), k_padded_(round_up(spec.k, kTileDepth)) {}

size_t GemmRows::scratch_bytes() const {
  const int64_t a = aligned(spec_.m * k_padded_ * 4), sums = aligned(spec_.m * kRowColumns * 4);
  return static_cast<size_t>(a + n_threads_ * (kPanelElems * (4 + 2) + 2 * sums));
}

GemmRows::Own GemmRows::own(const GemmArgs& args, int thread) const {
  const int64_t a = aligned(spec_.m * k_padded_ * 4), sums = aligned(spec_.m * kRowColumns * 4);
  char* at = static_cast<char*>(args.scratch) + a + thread * (kPanelElems * (4 + 2) + 2 * sums);
  Own own{};
  own.panel = reinterpret_cast<float*>(at);
  own.decoded = reinterpret_cast<uint16_t*>(at += kPanelElems * 4);
  own.run = reinterpret_cast<float*>(at += kPanelElems * 2);
  own.sums = reinterpret_cast<float*>(at + sums);
  return own;
}

// Rows [k_begin, k_end) of op(B) and columns [n_begin, n_end) into the panel, and zeros behind the
// rows up to n_rows.
void GemmRows::pack(const GemmArgs& args, const PanelRange& range, int64_t n_rows,
                    const Own& own) const {
  const bool transposed = spec_.trans_b == Transpose::yes;
  const int64_t k = range.k_end - range.k_begin, n = range.n_end - range.n_begin;
  const int64_t row = transposed ? range.n_begin : range.k_begin;
  const int64_t col = transposed ? range.k_begin : range.n_begin;
  MatrixIn b{offset(In{args.b, spec_.b}, row * spec_.b_stride + col), spec_.b_stride,
             spec_.trans_b};
  if (is_gemm_operand(spec_.b)) {
    const auto cols = static_cast<size_t>(transposed ? k : n);
    for (int64_t r = 0; r < (transposed ? n : k); ++r) {
      const auto* const codes = static_cast<const uint8_t*>(b.data.data) + r * spec_.b_stride;
      decode_bulk_bf16(spec_.b, {codes, cols},
                       {own.decoded + r * static_cast<int64_t>(cols), cols});
    }
    b = {{own.decoded, Dtype::bf16}, static_cast<int64_t>(cols), spec_.trans_b};
  }
  pack_panel(b, {kRowColumns, 1, n_rows, Dtype::f32}, {0, k, 0, n}, true, own.panel);
}

// op(A) as dense rows of k_padded, which end with zeros.
void GemmRows::pack_a(const GemmArgs& args) const {
  auto* const rows = static_cast<float*>(args.scratch);
  if (!is_gemm_operand(spec_.a)) {
    return pack_rows({{args.a, spec_.a}, spec_.a_stride, spec_.trans_a},
                     {0, spec_.m, spec_.k, k_padded_}, {rows, Dtype::f32});
  }
  const auto k = static_cast<size_t>(spec_.k);
  for (int64_t r = 0; r < spec_.m; ++r) {
    float* const row = rows + r * k_padded_;
    const auto* const codes = static_cast<const uint8_t*>(args.a) + r * spec_.a_stride;
    decode_bulk(spec_.a, {codes, k}, 1.0f, {row, k});
    std::fill(row + spec_.k, row + k_padded_, 0.0f);
  }
}

void GemmRows::strip(const GemmArgs& args, int64_t index, const Own& own) const {
  const int64_t n_begin = index * kRowColumns, n_end = std::min(spec_.n, n_begin + kRowColumns);
  RowProduct product{.a_stride = k_padded_,
                     .b = own.panel,
                     .b_stride = kRowColumns,
                     .c = own.run,
                     .c_stride = kRowColumns,
                     .m = spec_.m,
                     .n = kRowColumns};
  for (int64_t begin = 0; begin < k_padded_;) {
    const int64_t end = begin + order_.next(k_padded_ - begin);
    for (int64_t k = begin; k < end; k += product.k) {
      product.k = std::min(kDepth, end - k);
      product.order = {product.k};
      product.sum = k == begin ? RowSum::overwrite : RowSum::carry;
      product.a = static_cast<const float*>(args.scratch) + k;
      const int64_t k_end = std::clamp(spec_.k, k, k + product.k);
      pack(args, {k, k_end, n_begin, n_end}, product.k, own);
      multiply_rows(product);
    }
    const int64_t n_elems = spec_.m * kRowColumns;
    if (begin == 0) {
      std::copy(own.run, own.run + n_elems, own.sums);
    } else {
      for (int64_t i = 0; i < n_elems; ++i) own.sums[i] += own.run[i];
    }
    begin = end;
  }
}

void GemmRows::launch(const GemmArgs& args, ThreadPool& pool, const Finish& finish) const {
  CHECK(pool.n_threads() <= n_threads_);
  pack_a(args);
  for_tiles(pool, ceil_div(spec_.n, kRowColumns), [&](int64_t index, int thread) {
    const Own mine = own(args, thread);
    strip(args, index, mine);
    finish(index, mine.sums);
  });
}

}  // namespace octet::cpu
