// Facts of the quantizing kernels that parity_test.cpp does not say.
#include "backends/cpu/quantize/quantize.h"

#include <gtest/gtest.h>

#include "kernels_support.h"

namespace octet::cpu {
namespace {

TEST(quantize, a_sum_may_be_stored_over_its_first_term) {
  constexpr RowShape kShape{17, 40};
  constexpr int64_t kElems = kShape.rows * kShape.cols;
  constexpr size_t kScales = 17 * 3;
  ThreadPool pool(2);
  std::vector<float> scratch(static_cast<size_t>(quantize_scratch(kShape, 16, pool.n_threads())));
  for_each_target([&](const std::string& target) {
    for (const Dtype dtype : kStorage) {
      Buffer a(dtype, kElems), b(dtype, kElems), sum(dtype, kElems);
      a.randomize(1);
      b.randomize(2);
      std::vector<uint8_t> codes[2];
      std::vector<uint16_t> scales[2];
      for (const int in_place : {0, 1}) {
        codes[in_place].resize(kElems), scales[in_place].resize(kScales);
        add_quantize({a.in(),
                      b.in(),
                      in_place ? a.out() : sum.out(),
                      {Dtype::e4m3, 448, 16, codes[in_place].data(), scales[in_place].data()}},
                     kShape, scratch.data(), pool);
      }
      EXPECT_TRUE(codes[0] == codes[1] && scales[0] == scales[1] && a == sum) << target;
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
