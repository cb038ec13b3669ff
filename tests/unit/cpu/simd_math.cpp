// exp, tanh and erf of vectors (backends/cpu/common/simd_math-inl.h), for each Highway target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/cpu/simd_math.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd_math-inl.h"
#include "unit/cpu/kernels_support.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

void Exp(In x, Out y, int64_t n) {
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR { store(io, exp_f32(load(io, x, i)), y, i); });
}
void Tanh(In x, Out y, int64_t n) {
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR { store(io, tanh_f32(load(io, x, i)), y, i); });
}
void Erf(In x, Out y, int64_t n) {
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR { store(io, erf_f32(load(io, x, i)), y, i); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {
namespace {

HWY_EXPORT(Exp);
HWY_EXPORT(Tanh);
HWY_EXPORT(Erf);

void exp_of(In x, Out y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Exp)(x, y, n);
}
void tanh_of(In x, Out y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Tanh)(x, y, n);
}
void erf_of(In x, Out y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Erf)(x, y, n);
}

struct Row {
  void (*run)(In x, Out y, int64_t n);
  double (*want)(double x);
  double low, high;
};

// Distance in units of the last place of f32 at `want`.
double ulps(float got, double want) {
  const float near = static_cast<float>(want);
  const double unit =
      std::nextafter(std::abs(near), INFINITY) - static_cast<double>(std::abs(near));
  return std::abs(static_cast<double>(got) - want) / unit;
}

TEST(SimdMath, exp_tanh_and_erf_are_within_two_ulps) {
  const Row rows[] = {{exp_of, std::exp, -103.0, 88.7},  {exp_of, std::exp, -1.0, 1.0},
                      {tanh_of, std::tanh, -10.0, 10.0}, {tanh_of, std::tanh, -1e-3, 1.0},
                      {erf_of, std::erf, -5.0, 5.0},     {erf_of, std::erf, -1e-3, 1.5}};
  for_each_target([&](const std::string& target) {
    for (const Row& row : rows) {
      Buffer x(Dtype::f32, 200000), y(Dtype::f32, x.size());
      for (int64_t i = 0; i < x.size(); ++i) {
        const double part = static_cast<double>(i) / static_cast<double>(x.size());
        x.set(i, static_cast<float>(row.low + (row.high - row.low) * part));
      }
      row.run(x.in(), y.out(), x.size());
      double worst = 0;
      for (int64_t i = 0; i < x.size(); ++i)
        worst = std::max(worst, ulps(static_cast<float>(y.at(i)), row.want(x.at(i))));
      EXPECT_LE(worst, 2.0) << target << " row " << &row - rows;
    }
  });
}

TEST(SimdMath, nan_and_infinity_go_through) {
  const float values[] = {NAN, INFINITY, -INFINITY, 1000.0f, -1000.0f};
  for_each_target([&](const std::string&) {
    Buffer x(Dtype::f32, 5), y(Dtype::f32, 5);
    for (int i = 0; i < 5; ++i) x.set(i, values[i]);
    exp_of(x.in(), y.out(), 5);
    EXPECT_TRUE(std::isnan(y.at(0)));
    EXPECT_EQ(y.at(1), INFINITY);
    EXPECT_EQ(y.at(2), 0.0);
    EXPECT_EQ(y.at(3), INFINITY);
    EXPECT_EQ(y.at(4), 0.0);
    for (const auto run : {tanh_of, erf_of}) {
      run(x.in(), y.out(), 5);
      EXPECT_TRUE(std::isnan(y.at(0)));
      EXPECT_EQ(y.at(1), 1.0);
      EXPECT_EQ(y.at(2), -1.0);
    }
  });
}

}  // namespace
}  // namespace octet::cpu
#endif
