// Fused spans against the same work step by step: equal bits, also for NaN, Inf and zero groups.
#include "backends/cpu/elementwise/fused_spans.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "formats/bf16.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

constexpr RowShape kFusedShape{5, 272};  // four registers side by side, and one left over

// Codes of every kind with scales from tiny to large; or the same values in bf16.
struct Matrix {
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales, plain;
  explicit Matrix(uint32_t seed)
      : codes(kFusedShape.rows * kFusedShape.cols), scales(codes.size() / 16), plain(codes.size()) {
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<uint8_t>((i + seed) * 2654435761u >> 13);
      if (i / 272 != 3 && (codes[i] & 0x7F) == 0x7F) codes[i] = 0;  // NaN in one row alone
      plain[i] = static_cast<uint16_t>(codes[i] << 8 | (i & 0xFF));
      if ((plain[i] & 0x7F80) == 0x7F80 && i / 272 != 3) plain[i] = 0;
    }
    for (size_t i = 0; i < scales.size(); ++i) {
      scales[i] = f32_to_bf16(
          std::ldexp(1.0f + static_cast<float>(i % 5) / 8, static_cast<int>(i * seed % 23) - 14));
    }
  }
  QuantizedMatrix coded() const {
    return {{codes.data(), Dtype::e4m3}, {scales.data(), Dtype::bf16}, 16};
  }
  QuantizedMatrix unquantized() const { return {{plain.data(), Dtype::bf16}}; }
};

RowSpan row(int64_t r) {
  return {r, 0, kFusedShape.cols, kFusedShape.cols};
}

// The values of a span without the fused reader.
std::vector<float> values_of(const QuantizedMatrix& matrix, const RowSpan& span) {
  std::vector<float> x(static_cast<size_t>(span.n));
  for (int64_t i = 0; i < span.n; ++i) {
    const size_t at = static_cast<size_t>(span.row * span.cols + span.col + i);
    if (matrix.group == 0) {
      x[i] = f32_from_bf16(static_cast<const uint16_t*>(matrix.x.data)[at]);
    } else {
      const float scale = f32_from_bf16(static_cast<const uint16_t*>(matrix.scales.data)[at / 16]);
      x[i] = decode<Dtype::e4m3>(static_cast<const uint8_t*>(matrix.x.data)[at]) * scale;
    }
  }
  return x;
}

std::vector<uint32_t> bits_of_all(const std::vector<float>& x) {
  std::vector<uint32_t> bits(x.size());
  std::memcpy(bits.data(), x.data(), x.size() * sizeof(float));
  return bits;
}

// Which NaN comes of two is not said.
void unify_nan(std::vector<uint16_t>& x) {
  for (uint16_t& value : x) {
    if (std::isnan(f32_from_bf16(value))) value = 0x7FFF;
  }
}

// `fused(sink)` gives what the values give by themselves.
template <typename Fused>
void expect_written(const std::vector<float>& values, Fused&& fused, const std::string& what) {
  const In x{values.data(), Dtype::f32};
  const auto n = static_cast<int64_t>(values.size());
  float amax = -7;
  ASSERT_TRUE(fused(SpanOutput{.amax = &amax})) << what;
  const float want = signed_amax(x, n);
  EXPECT_EQ(bits_of(amax), bits_of(want)) << what;
  for (const Dtype format : {Dtype::e4m3, Dtype::e5m2}) {
    std::vector<uint8_t> got(values.size()), expected(values.size());
    encode_span(simd_codec(format), x, n, {3.7f}, expected.data());
    ASSERT_TRUE(fused(SpanOutput{.codes = got.data(), .format = format, .inv_scale = 3.7f}));
    EXPECT_EQ(got, expected) << what << " " << dtype_name(format);
  }
  EXPECT_FALSE(fused(SpanOutput{.codes = nullptr, .format = Dtype::hif8})) << what;
}

class quantize_fused : public ::testing::Test {
 protected:
  void SetUp() override {
    float buffer[16];
    const Matrix m(1);
    if (!fused_read(m.coded(), {0, 0, 16, 272}, buffer)) {
      GTEST_SKIP() << "this machine has no registers of 16 floats";
    }
  }
  const Matrix a_{3}, b_{11};
};

TEST_F(quantize_fused, reads_groups_as_decoding_and_scaling_do) {
  for (int64_t r = 0; r < kFusedShape.rows; ++r) {
    const RowSpan span{r, 32, 240, kFusedShape.cols};
    std::vector<float> got(240);
    ASSERT_TRUE(fused_read(a_.coded(), span, got.data()));
    EXPECT_EQ(bits_of_all(got), bits_of_all(values_of(a_.coded(), span)));
  }
}

TEST_F(quantize_fused, gated_equals_its_steps) {
  for (const bool coded : {true, false}) {
    const QuantizedMatrix gate = coded ? a_.coded() : a_.unquantized(),
                          up = coded ? b_.coded() : b_.unquantized();
    for (int64_t r = 0; r < kFusedShape.rows; ++r) {
      const auto g = values_of(gate, row(r)), u = values_of(up, row(r));
      std::vector<float> y(g.size());
      activate_span(
          {.x = {g.data(), Dtype::f32}, .up = {u.data(), Dtype::f32}, .y = {y.data(), Dtype::f32}},
          kFusedShape.cols);
      const auto fused = [&](const SpanOutput& output) {
        return fused_gated(gate, up, row(r), output);
      };
      expect_written(y, fused, (coded ? "codes, row " : "bf16, row ") + std::to_string(r));
    }
  }
}

TEST_F(quantize_fused, gated_backward_equals_its_steps) {
  for (int64_t r = 0; r < kFusedShape.rows; ++r) {
    const auto g = values_of(a_.coded(), row(r)), u = values_of(b_.coded(), row(r));
    const In dy{a_.plain.data(), Dtype::bf16};
    std::vector<uint16_t> want[2], got[2];
    for (auto* result : {want, got}) {
      for (int i = 0; i < 2; ++i) result[i].resize(g.size());
    }
    activate_backward_span({.x = {g.data(), Dtype::f32},
                            .up = {u.data(), Dtype::f32},
                            .dy = dy,
                            .dx = {want[0].data(), Dtype::bf16},
                            .dup = {want[1].data(), Dtype::bf16}},
                           kFusedShape.cols);
    ASSERT_TRUE(fused_gated_backward(
        a_.coded(), b_.coded(), row(r),
        {.dy = dy, .dx = {got[0].data(), Dtype::bf16}, .dup = {got[1].data(), Dtype::bf16}}));
    for (auto* result : {want, got}) {
      for (int i = 0; i < 2; ++i) unify_nan(result[i]);
    }
    EXPECT_EQ(got[0], want[0]) << r;
    EXPECT_EQ(got[1], want[1]) << r;
  }
}

TEST_F(quantize_fused, normalized_equals_its_steps) {
  const auto weight = values_of(b_.unquantized(), row(0)),
             bias = values_of(a_.unquantized(), row(1));
  for (const bool with_bias : {false, true}) {
    NormalizeSpan step{.weight = {weight.data(), Dtype::f32}, .mean = 0.3f, .rstd = 1.7f};
    if (with_bias) step.bias = {bias.data(), Dtype::f32};
    for (int64_t r = 0; r < kFusedShape.rows; ++r) {
      for (const QuantizedMatrix& x : {a_.coded(), a_.unquantized()}) {
        const auto values = values_of(x, row(r));
        std::vector<float> y(values.size());
        NormalizeSpan whole = step;
        whole.x = {values.data(), Dtype::f32};
        whole.y = y.data();
        normalize_span(whole, kFusedShape.cols);
        const std::string what = std::to_string(r) + (with_bias ? " bias" : "");
        expect_written(
            y, [&](const SpanOutput& output) { return fused_normalize(&x, row(r), step, output); },
            what);
        expect_written(
            y,
            [&](const SpanOutput& output) {
              return fused_normalize(nullptr, row(r), whole, output);
            },
            what);
      }
    }
  }
}

TEST_F(quantize_fused, leaves_what_it_does_not_know) {
  float x[16];
  QuantizedMatrix other = a_.coded();
  other.group = 32;
  EXPECT_FALSE(fused_read(other, row(0), x));
  EXPECT_FALSE(fused_read(a_.coded(), {0, 0, 15, 272}, x));
  EXPECT_FALSE(fused_groups({x, Dtype::f32}, 16, {.format = Dtype::hif8, .group = 16}));
}

}  // namespace
}  // namespace octet::cpu
