// The quantizing kernels against formats/quantize.h, bit for bit, on every vector target: ragged
// shapes, odd groups, padding, guards around every result.
#include "backends/cpu/quantize/quantize.h"

#include <gtest/gtest.h>

#include "backends/cpu/quantize/quantize_layers.h"
#include "formats/quantize.h"
#include "kernels_support.h"

namespace octet::cpu {
namespace {

constexpr Dtype kQuantizedFormats[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8};
constexpr RowShape kShapes[] = {{1, 1}, {3, 5}, {17, 40}, {64, 64}, {130, 352}, {65, 1100}};
constexpr int64_t kGroups[] = {1, 7, 16, 128, 2000};

// Bytes between guards, poisoned with 0xA5.
class Bytes {
 public:
  explicit Bytes(int64_t n) : n_(static_cast<size_t>(n)), bytes_(n_ + 2 * kGuard, kPoison) {}
  uint8_t* data() { return bytes_.data() + kGuard; }
  uint16_t* words() { return reinterpret_cast<uint16_t*>(data()); }
  uint8_t operator[](int64_t i) const { return bytes_[kGuard + static_cast<size_t>(i)]; }
  bool guards_intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (bytes_[i] != kPoison || bytes_[kGuard + n_ + i] != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kPoison = 0xA5;
  size_t n_;
  std::vector<uint8_t> bytes_;
};

// Normal numbers over many magnitudes, with zeros, a NaN and both Inf.
Buffer values_of(Dtype dtype, RowShape shape) {
  Buffer x(dtype, shape.rows * shape.cols);
  x.randomize(7, 3.0);
  const auto at = [&](int64_t i) { return static_cast<float>(x.at(i)); };
  for (int64_t i = 0; i < x.size(); ++i) {
    if (i % 11 == 3) x.set(i, std::ldexp(at(i), static_cast<int>(i % 90) - 60));
    if (i / 16 % 5 == 2) x.set(i, 0.0f);
  }
  if (x.size() > 100) {
    x.set(41, std::nanf(""));
    x.set(77, INFINITY);
    x.set(97, -INFINITY);
  }
  return x;
}

std::vector<float> to_f32(const Buffer& x) {
  std::vector<float> values;
  for (int64_t i = 0; i < x.size(); ++i) values.push_back(static_cast<float>(x.at(i)));
  return values;
}

std::vector<float> scratch_for(RowShape shape, int64_t group, int n_threads) {
  return std::vector<float>(static_cast<size_t>(quantize_scratch(shape, group, n_threads)), NAN);
}

// fn(shape, dtype of the values, format, name of the case) on every target.
template <typename Fn>
void for_each_case(Fn&& fn) {
  for_each_target([&](const std::string& target) {
    for (const RowShape& shape : kShapes) {
      for (const Dtype dtype : kStorage) {
        for (const Dtype format : kQuantizedFormats) {
          fn(shape, dtype, format,
             fmt::format("{} {} {} [{}, {}]", target, dtype_name(dtype), dtype_name(format),
                         shape.rows, shape.cols));
        }
      }
    }
  });
}

TEST(quantize, codes_by_row_and_transposed_equal_the_formats) {
  ThreadPool pool(2);
  for_each_case([&](RowShape shape, Dtype dtype, Dtype format, const std::string& what) {
    const Buffer x = values_of(dtype, shape);
    const std::vector<float> wide = to_f32(x);
    const float scale = 0.0123f;
    for (const int64_t pad : {1, 16}) {
      const int64_t padded = round_up(shape.rows, pad);
      Bytes rows(shape.rows * shape.cols), alone(shape.rows * shape.cols);
      Bytes transposed(shape.cols * padded);
      auto scratch = scratch_for(shape, 0, pool.n_threads());
      quantize(x.in(), {format, scale, 0, rows.data(), transposed.data(), padded, 0}, shape,
               scratch.data(), pool);
      quantize(x.in(), {format, scale, 0, alone.data(), nullptr, 0, 0}, shape, nullptr, pool);
      for (int64_t c = 0; c < shape.cols; ++c) {
        for (int64_t r = 0; r < padded; ++r) {
          const int64_t i = r * shape.cols + c;
          const uint8_t want = r >= shape.rows
                                   ? 0
                                   : static_cast<uint8_t>(encode(
                                         format, wide[static_cast<size_t>(i)] * (1.0f / scale)));
          ASSERT_EQ(transposed[c * padded + r], want) << what << " row " << r << " col " << c;
          if (r >= shape.rows) continue;
          ASSERT_EQ(rows[i], want) << what << " " << i;
          ASSERT_EQ(alone[i], want) << what << " " << i;
        }
      }
      EXPECT_TRUE(rows.guards_intact() && alone.guards_intact() && transposed.guards_intact());
    }
  });
}

TEST(quantize, groups_and_their_scales_equal_the_formats) {
  ThreadPool pool(2);
  for_each_case([&](RowShape shape, Dtype dtype, Dtype format, const std::string& what) {
    const Buffer x = values_of(dtype, shape);
    const std::vector<float> wide = to_f32(x);
    const int64_t n = shape.rows * shape.cols;
    for (const int64_t group : kGroups) {
      const Quantizer quantizer = linear_quantizer(format, {Granularity::Kind::group, group});
      const int64_t n_scales = shape.rows * ceil_div(shape.cols, group);
      std::vector<uint8_t> codes(static_cast<size_t>(n));
      std::vector<float> scales(static_cast<size_t>(n_scales)), back(static_cast<size_t>(n));
      octet::quantize(quantizer, {shape.rows, shape.cols}, wide, codes, scales);
      octet::dequantize(quantizer, {shape.rows, shape.cols}, codes, scales, back);

      Bytes got(n), got_scales(2 * n_scales);
      auto scratch = scratch_for(shape, group, pool.n_threads());
      quantize_groups(x.in(),
                      {format, quantizer.amax_target, group, got.data(), got_scales.words()}, shape,
                      scratch.data(), pool);
      Buffer decoded(Dtype::f32, n);
      dequantize({{got.data(), format}, {got_scales.data(), Dtype::bf16}, group}, decoded.out(),
                 shape, scratch.data(), pool);
      for (size_t i = 0; i < codes.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        ASSERT_EQ(got[at], codes[i]) << what << " group " << group << " " << i;
        const auto value = static_cast<float>(decoded.at(at));
        ASSERT_TRUE(value == back[i] || (is_nan(value) && is_nan(back[i]))) << what << " " << i;
      }
      for (size_t i = 0; i < scales.size(); ++i) {
        ASSERT_EQ(bf16_to_f32(got_scales.words()[i]), scales[i]) << what << " group " << group;
      }
      EXPECT_TRUE(got.guards_intact() && got_scales.guards_intact() && decoded.guards_intact());
    }
  });
}

// A BF16 scale that is rounded up would make infinity of the amax.
TEST(quantize, groups_near_the_largest_number_equal_the_formats_and_stay_finite) {
  ThreadPool pool(2);
  constexpr RowShape kShape{25, 16};
  for_each_target([&](const std::string& target) {
    for (const Dtype format : kQuantizedFormats) {
      for (const int64_t group : {16, 5}) {
        Buffer x(Dtype::f32, kShape.rows * kShape.cols);
        for (int64_t i = 0; i < x.size(); ++i) {
          const double below = 1 - 5e-6 * static_cast<double>(i);
          x.set(i, static_cast<float>(3.4028234663852886e38 * below * (i % 3 == 0 ? -1 : 1)));
        }
        const Quantizer quantizer = linear_quantizer(format, {Granularity::Kind::group, group});
        const int64_t n_scales = kShape.rows * ceil_div(kShape.cols, group);
        std::vector<uint8_t> codes(static_cast<size_t>(x.size()));
        std::vector<float> scales(static_cast<size_t>(n_scales));
        octet::quantize(quantizer, {kShape.rows, kShape.cols}, to_f32(x), codes, scales);
        Bytes got(x.size()), got_scales(2 * n_scales);
        auto scratch = scratch_for(kShape, group, pool.n_threads());
        quantize_groups(x.in(),
                        {format, quantizer.amax_target, group, got.data(), got_scales.words()},
                        kShape, scratch.data(), pool);
        Buffer decoded(Dtype::f32, x.size());
        dequantize({{got.data(), format}, {got_scales.data(), Dtype::bf16}, group}, decoded.out(),
                   kShape, scratch.data(), pool);
        for (int64_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(got[i], codes[static_cast<size_t>(i)]) << target << " " << dtype_name(format);
          ASSERT_LE(std::abs(decoded.at(i) / x.at(i) - 1), 0.13) << target << " " << i;
        }
      }
    }
  });
}

TEST(quantize, dequantize_per_tensor_rounds_once) {
  ThreadPool pool(1);
  for_each_case([&](RowShape shape, Dtype dtype, Dtype format, const std::string& what) {
    const int64_t n = shape.rows * shape.cols;
    Bytes codes(n);
    for (int64_t i = 0; i < n; ++i) codes.data()[i] = static_cast<uint8_t>(i * 37 + 5);
    const float scale = 0.7f;
    Buffer y(dtype, n);
    auto scratch = scratch_for(shape, 0, 1);
    dequantize({{codes.data(), format}, {&scale, Dtype::f32}, 0}, y.out(), shape, scratch.data(),
               pool);
    Buffer want(dtype, 1);
    for (int64_t i = 0; i < n; ++i) {
      want.set(0, decode(format, codes[i]) * scale);
      ASSERT_TRUE(y.at(i) == want.at(0) || (std::isnan(y.at(i)) && std::isnan(want.at(0)))) << what;
    }
    EXPECT_TRUE(y.guards_intact());
  });
}

TEST(quantize, sum_is_stored_and_quantized_from_f32) {
  ThreadPool pool(2);
  const RowShape shape{17, 40};
  const int64_t n = shape.rows * shape.cols, n_scales = shape.rows * 3;
  for_each_target([&](const std::string& target) {
    for (const Dtype dtype : kStorage) {
      Buffer a(dtype, n), b(dtype, n), wide(Dtype::f32, n);
      a.randomize(1);
      b.randomize(2);
      for (int64_t i = 0; i < n; ++i) wide.set(i, static_cast<float>(a.at(i) + b.at(i)));
      Bytes codes(n), scales(2 * n_scales), want_codes(n), want_scales(2 * n_scales);
      auto scratch = scratch_for(shape, 16, pool.n_threads());
      quantize_groups(wide.in(), {Dtype::e4m3, 448, 16, want_codes.data(), want_scales.words()},
                      shape, scratch.data(), pool);
      // In place, as a plan may want it.
      add_quantize({a.in(), b.in(), a.out(), {Dtype::e4m3, 448, 16, codes.data(), scales.words()}},
                   shape, scratch.data(), pool);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(codes[i], want_codes[i]) << target << " " << i;
        Buffer once(dtype, 1);
        once.set(0, static_cast<float>(wide.at(i)));
        ASSERT_EQ(a.at(i), once.at(0)) << target << " " << i;
      }
      for (int64_t i = 0; i < 2 * n_scales; ++i) ASSERT_EQ(scales[i], want_scales[i]) << target;
    }
  });
}

TEST(quantize, tensor_scale_has_a_floor_and_zero_gives_one) {
  EXPECT_EQ(tensor_scale(0.0f, 448.0f), 1.0f);
  EXPECT_EQ(tensor_scale(1e-38f, 448.0f), 0x1p-100f);
  EXPECT_EQ(tensor_scale(37.25f, 448.0f), 37.25f * (1.0f / 448.0f));
}

TEST(quantize, amax_skips_what_is_not_finite_and_says_so) {
  for_each_target([&](const std::string& target) {
    for (const Dtype dtype : kStorage) {
      for (const int64_t n : {1, 15, 16, 33, 1000}) {
        Buffer x(dtype, n);
        x.randomize(3);
        double top = 0;
        for (int64_t i = 0; i + 1 < n; ++i) top = std::max(top, std::abs(x.at(i)));
        for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
          x.set(n - 1, bad);
          const float got = signed_amax(x.in(), n);
          EXPECT_TRUE(std::signbit(got)) << target << " " << n;
          EXPECT_EQ(std::abs(got), static_cast<float>(top)) << target << " " << n;
        }
        x.set(n - 1, 100.0f);
        EXPECT_EQ(signed_amax(x.in(), n), 100.0f) << target << " " << n;
      }
    }
  });
}

}  // namespace
}  // namespace octet::cpu
