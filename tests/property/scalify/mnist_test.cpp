// The short form of tests/slow/mnist: 120 steps.
#include "property/scalify/mnist.h"

namespace octet::scalify_mnist_test {
namespace {

using mnist::Precision;

class Mnist : public testing::TestWithParam<double> {};

TEST_P(Mnist, plain_fp16_fails_where_scaled_fp16_learns_as_f32_does) {
  const auto train = mnist::read("train");
  auto test = mnist::read("t10k");
  if (!train || !test) GTEST_SKIP() << "the images are not there (CMake variable OCTET_TEST_DATA)";
  test->labels.resize(960);
  const auto accuracy = [&](Precision precision) {
    const double share = mnist::test_accuracy(
        {.precision = precision, .width = GetParam(), .seed = 1, .steps = 120}, *train, *test);
    std::printf("[ mnist ] width %g, %s: %.1f %%\n", GetParam(),
                precision == Precision::f32    ? "f32"
                : precision == Precision::fp16 ? "plain FP16"
                                               : "scaled FP16",
                100 * share);
    return share;
  };
  const double wide = accuracy(Precision::f32), plain = accuracy(Precision::fp16),
               scaled = accuracy(Precision::scaled_fp16);
  EXPECT_GT(wide, 0.6);
  EXPECT_LT(plain, 0.2);
  EXPECT_NEAR(scaled, wide, 0.05);
}

INSTANTIATE_TEST_SUITE_P(widths, Mnist, testing::Values(4.0, 8.0));

}  // namespace
}  // namespace octet::scalify_mnist_test
