// Codes packed straight into panels and rows are what decoding and packing after one another give,
// on every vector target.
#include "backends/cpu/gemm/pack_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "formats/bits.h"
#include "formats/codec.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

constexpr Dtype kFormats[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8};
constexpr uint16_t kUntouched = 0xA5A5;

// op(X) [rows, cols] of codes that take all values in turn, with gaps between the stored rows.
struct Operand {
  Dtype format;
  Transpose transpose;
  int64_t rows, cols, stride;
  std::vector<uint8_t> codes;
  Operand(Dtype format, Transpose transpose, int64_t rows, int64_t cols)
      : format(format), transpose(transpose), rows(rows), cols(cols) {
    const bool transposed = transpose == Transpose::yes;
    stride = (transposed ? rows : cols) + 3;
    codes.resize(static_cast<size_t>(stride * (transposed ? cols : rows)));
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  }
  MatrixIn matrix() const { return {{codes.data(), format}, stride, transpose}; }
  float value(int64_t r, int64_t c) const {
    if (r >= rows || c >= cols) return 0;
    const auto at = transpose == Transpose::yes ? c * stride + r : r * stride + c;
    return decode(format, codes[static_cast<size_t>(at)]);
  }
};

void expect_value(uint16_t got, float want) {
  const float x = float_of(uint32_t{got} << 16);
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(x));
  } else {
    EXPECT_EQ(bits_of(x), bits_of(want));
  }
}

TEST(pack_codes, panels_hold_pairs_of_rows_side_by_side) {
  for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Dtype format : kFormats) {
      for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
        for (const auto& [k, n] : std::vector<std::array<int64_t, 2>>{
                 {64, 64}, {128, 64}, {1, 1}, {75, 37}, {96, 64}, {130, 63}}) {
          const Operand b(format, transpose, k, n);
          const PanelLayout layout{64, 2, round_up(k, 32), Dtype::bf16};
          std::vector<uint16_t> x(static_cast<size_t>(layout.panel_elems()) + 1, kUntouched);
          const int64_t half = k / 128 * 64;
          if (half > 0) pack_code_panel(b.matrix(), layout, {0, half, 0, n}, false, x.data());
          pack_code_panel(b.matrix(), layout, {half, k, 0, n}, true, x.data());
          for (int64_t i = 0; i < layout.panel_elems(); ++i) {
            const int64_t row = i / 128 * 2 + i % 2, col = i / 2 % 64;
            expect_value(x[static_cast<size_t>(i)], b.value(row, col));
          }
          EXPECT_EQ(x.back(), kUntouched);
        }
      }
    }
  });
}

TEST(pack_codes, rows_are_dense_and_end_in_zeros) {
  for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Dtype format : kFormats) {
      for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
        for (const auto& [m, k] : std::vector<std::array<int64_t, 2>>{
                 {64, 64}, {1, 1}, {70, 75}, {130, 128}, {17, 160}, {5, 193}}) {
          const Operand a(format, transpose, m, k);
          const int64_t end = round_up(k, 32), half = k / 128 * 64, first = m / 3;
          std::vector<uint16_t> x(static_cast<size_t>((m - first) * end) + 1, kUntouched);
          if (half > 0) pack_code_rows(a.matrix(), {first, m, 0, half, half, end}, x.data());
          pack_code_rows(a.matrix(), {first, m, half, k, end, end}, x.data() + half);
          for (int64_t i = 0; i < (m - first) * end; ++i)
            expect_value(x[static_cast<size_t>(i)], a.value(first + i / end, i % end));
          EXPECT_EQ(x.back(), kUntouched);
        }
      }
    }
  });
}

}  // namespace
}  // namespace octet::cpu
