// All of CIFAR-10's test pictures under the public residual networks: what reference.json says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "cli/program_run.h"

namespace octet {
namespace {

const std::string kShared = OCTET_TEST_DATA "/data/";
const std::string kWeights = kShared + "weights/cifar_resnet/";

TEST(ResNetOfCifar, has_the_accuracy_of_its_reference) {
  if (!posix_files().exists(kWeights + "reference.json"))
    GTEST_SKIP() << "the weights are not there (CMake variable OCTET_TEST_DATA)";
  const Json reference = Json::parse(posix_files().read_text(kWeights + "reference.json"));
  const test::ScratchFolder folder;
  for (const int layers : {20, 56}) {
    const std::string name = fmt::format("resnet{}", layers);
    const int n = (layers - 2) / 6;
    folder.put(name + "/config.json",
               fmt::format(R"({{"model_type": "resnet", "cifar": true, "image_size": 32,
                   "embedding_size": 16, "depths": [{0}, {0}, {0}], "hidden_sizes": [16, 32, 64],
                   "layer_type": "basic", "num_labels": 10}})",
                           n));
    folder.put(name + "/preprocessor_config.json",
               R"({"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})");
    folder.put(name + "/model.safetensors",
               posix_files().read_text(kWeights + name + ".safetensors"));
    const test::Outcome outcome = test::run_program(
        folder, fmt::format("eval --json --model {} --task-data {}images --tasks cifar10 --batch "
                            "100 --recipe fp32",
                            folder / name, kShared));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json row = Json::parse(outcome.out).at(0);
    const Json& expected = reference.at("results_fp32").at(name);
    EXPECT_NEAR(100 * row.at("acc").get<double>(), expected.at("top1").get<double>(), 0.02) << name;
    EXPECT_NEAR(row.at("cross_entropy").get<double>(), expected.at("ce").get<double>(), 1e-4)
        << name;
  }
}

}  // namespace
}  // namespace octet
