// All of CIFAR-10's test pictures under the public residual networks: what reference.json says.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "cli/encoders/cifar_folder.h"

namespace octet::resnet_cifar_test {
namespace {

TEST(ResNetOfCifar, has_the_accuracy_of_its_reference) {
  if (!posix_files().exists(test::kCifarWeights + "reference.json"))
    GTEST_SKIP() << "the weights are not there (CMake variable OCTET_TEST_DATA)";
  const Json reference =
      Json::parse(posix_files().read_text(test::kCifarWeights + "reference.json"));
  const test::ScratchFolder folder;
  for (const int layers : {20, 56}) {
    const std::string name = test::put_cifar_folder(folder, layers);
    const test::Outcome outcome = test::evaluate_cifar(folder, name, "--batch 100");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json row = Json::parse(outcome.out).at(0);
    const Json& expected = reference.at("results_fp32").at(name);
    EXPECT_NEAR(100 * row.at("acc").get<double>(), expected.at("top1").get<double>(), 0.02) << name;
    EXPECT_NEAR(row.at("cross_entropy").get<double>(), expected.at("ce").get<double>(), 1e-4)
        << name;
  }
}

}  // namespace
}  // namespace octet::resnet_cifar_test
