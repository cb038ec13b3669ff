// Ten epochs of MNIST in FP16 with scales and without; minutes a run, an hour in all.
#include "property/scalify/mnist.h"

namespace octet::mnist_test {
namespace {

using mnist::Precision;

class Mnist : public testing::TestWithParam<std::tuple<double, int>> {};

TEST_P(Mnist, scaled_fp16_reaches_the_accuracy_of_f32) {
  const auto train = mnist::read("train"), test = mnist::read("t10k");
  if (!train || !test) GTEST_SKIP() << "the images are not there (CMake variable OCTET_TEST_DATA)";
  const auto [width, seed] = GetParam();
  const auto accuracy = [&, width = width, seed = seed](Precision precision) {
    const double share = mnist::test_accuracy(
        {.precision = precision, .width = width, .seed = seed, .steps = 9375}, *train, *test);
    std::printf("[ mnist ] width %g, seed %d, precision %d: %.2f %%\n", width, seed,
                static_cast<int>(precision), 100 * share);
    std::fflush(stdout);
    return share;
  };
  EXPECT_LT(accuracy(Precision::fp16), 0.2);
  // It may be more accurate: 28 of 10,000 images were the most that it was.
  const double f32 = accuracy(Precision::f32);
  EXPECT_GE(accuracy(Precision::scaled_fp16), f32 - 0.002);
}

INSTANTIATE_TEST_SUITE_P(widths, Mnist,
                         testing::Combine(testing::Values(2.0, 4.0, 8.0),
                                          testing::Values(1, 2, 3)));

}  // namespace
}  // namespace octet::mnist_test
