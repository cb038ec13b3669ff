// Convolutional networks beside residual ones: runs, exports, what is quantized, and what is not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/encoders/bright_records.h"
#include "cli/encoders/encoder_run.h"
#include "io/safetensors.h"

namespace octet::convolutional {
namespace {

using test::bright_records;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using testing::HasSubstr;

const std::string kMobileNet =
    "{kind: mobilenet_v2, image_size: 32, output_stride: 8, depth_multiplier: 0.1, min_depth: 4, "
    "depth_divisible_by: 4, expand_ratio: 2, finegrained_output: false, classes: 3}";
const std::string kVgg =
    "{kind: vgg, image_size: 32, depths: [1, 2], hidden_sizes: [8, 12], classifier_hidden: 8, "
    "classes: 3}";
const std::string kDensenet =
    "{kind: densenet, image_size: 32, depths: [2, 2], embedding_size: 8, growth_rate: 6, bn_size: "
    "2, classes: 3}";

std::string yaml(const ScratchFolder& folder, const std::string& model, const std::string& recipe) {
  const std::string train = folder.put("train.bin", bright_records(60, "train")),
                    val = folder.put("val.bin", bright_records(30, "val"));
  return fmt::format(
      "model: {}\nrecipe: {}\noptim: {{lr: 1.0e-2, warmup: 2}}\ndata: {{train: [{}], val: [{}]}}\n"
      "train: {{steps: 16, batch: 10, eval_every: 8, save_every: 0}}\nout: {}\n",
      model, recipe, train, val, folder / "run");
}

double loss_of(const ScratchFolder& folder, const std::string& model, const std::string& more) {
  const Outcome outcome = run_program(
      folder, fmt::format("eval --json --model {} --data {} {}", model, folder / "val.bin", more));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out).at(0).at("cross_entropy").get<double>();
}

TEST(ConvolutionalRuns, learn_and_go_on_with_the_same_bits) {
  for (const std::string& model : {kMobileNet, kVgg, kDensenet}) {
    SCOPED_TRACE(model);
    const ScratchFolder folder;
    const std::string text = yaml(folder, model, "coat");
    const Outcome outcome = test::train_encoder(
        folder, text, "--set recipe=fp8_linear --set train.steps=40 --set train.eval_every=0");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_LT(test::metrics(folder / "run").back().at("loss"), 0.9);  // chance is 1.10
    if (model == kMobileNet)
      test::expect_same_bits_resumed(folder, text, "--set train.eval_every=0 ");
  }
}

TEST(ConvolutionalRuns, quantize_depthwise_products_where_the_recipe_asks) {
  const ScratchFolder folder;
  const std::string path = folder.put("net.yaml", yaml(folder, kMobileNet, "fp8_linear"));
  const auto table = [&](const std::string& recipe) {
    const Outcome outcome =
        run_program(folder, "plan --policy " + path + " --set 'recipe=" + recipe + "'");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string name = "layers.4.conv_3x3.convolution";
  EXPECT_THAT(table("fp8_linear"), HasSubstr(name + "    x e4m3  w e4m3  dy e5m2"));
  EXPECT_THAT(table("{base: fp8_linear, override: {\"*.conv_3x3.convolution\": bf16}}"),
              HasSubstr(name + "    x bf16  w bf16  dy bf16"));
  // And the numbers differ by it alone.
  const auto first_loss = [&](const char* out, const std::string& recipe) {
    const Outcome outcome = run_program(
        folder, fmt::format("train {} --quiet --set 'recipe={}' --set train.steps=2 --set "
                            "train.eval_every=0 --set out={}",
                            path, recipe, folder / out));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return test::metrics(folder / out).front().at("loss").get<double>();
  };
  const double all = first_loss("all", "fp8_linear");
  const double others =
      first_loss("others", "{base: fp8_linear, override: {\"*.conv_3x3.convolution\": bf16}}");
  const double none = first_loss("none", "bf16");
  EXPECT_NE(all, others);
  EXPECT_NEAR(all, none, 0.1);
  EXPECT_NEAR(others, none, 0.1);
}

TEST(ConvolutionalRuns, are_exported_and_quantized) {
  const struct {
    std::string model, weight, bias, norm, kept;
    Shape shape;
  } cases[] = {
      {kMobileNet,
       "mobilenet_v2.layer.3.conv_3x3.convolution.weight",
       "mobilenet_v2.layer.3.conv_3x3.convolution.bias",
       "mobilenet_v2.layer.3.conv_3x3.normalization.running_var",
       "classifier.weight",
       {8, 1, 3, 3}},
      {kVgg,
       "features.7.weight",
       "features.7.bias",
       "features.8.running_mean",
       "classifier.6.weight",
       {12, 12, 3, 3}},
      {kDensenet,
       "features.denseblock2.denselayer1.conv1.weight",
       "features.denseblock2.denselayer1.conv1.bias",
       "features.denseblock2.denselayer1.norm2.weight",
       "features.norm5.running_mean",
       {12, 10, 1, 1}},
  };
  for (const auto& [spec, weight, bias, norm, kept, shape] : cases) {
    SCOPED_TRACE(spec);
    const ScratchFolder folder;
    const Outcome trained = test::train_encoder(folder, yaml(folder, spec, "fp32"));
    ASSERT_EQ(trained.code, 0) << trained.err;
    const std::string run = folder / "run", model = folder / "model", folded = folder / "folded";
    ASSERT_EQ(run_program(folder, fmt::format("convert {} {} --dtype f32", run, model)).code, 0);
    const double exact = loss_of(folder, model, "--recipe fp32");
    EXPECT_NEAR(loss_of(folder, run, "--recipe fp32"), exact, 1e-6);
    EXPECT_EQ(loss_of(folder, model, "--recipe fp32 --batch 7"), exact);
    const auto reader = SafetensorsReader::open(posix_files(), model + "/model.safetensors");
    EXPECT_EQ(reader.at(weight).shape, shape);
    ASSERT_NE(reader.find(norm), nullptr);
    ASSERT_NE(reader.find(kept), nullptr);
    const Outcome fold =
        run_program(folder, fmt::format("convert {} {} --fold-norms", model, folded));
    ASSERT_EQ(fold.code, 0) << fold.err;
    EXPECT_NEAR(loss_of(folder, folded, "--recipe fp32"), exact, 1e-5);
    const auto without = SafetensorsReader::open(posix_files(), folded + "/model.safetensors");
    EXPECT_EQ(without.find(norm), nullptr);
    ASSERT_NE(without.find(bias), nullptr);
    ASSERT_NE(without.find(kept), nullptr);
    const Outcome ptq = run_program(
        folder, fmt::format("ptq --format e4m3 --method max --calib {} --model {} --out {}",
                            folder / "train.bin", model, folder / "q"));
    ASSERT_EQ(ptq.code, 0) << ptq.err;
    const double loss = loss_of(folder, folder / "q", "--recipe fp32");
    EXPECT_NE(loss, exact);
    EXPECT_NEAR(loss, exact, 0.1);
  }
}

// Bytes that the layers keep for the backward pass, and of the plan's peak.
struct Kept {
  double layers = 0, peak = 0;
};
Kept kept_by(const ScratchFolder& folder, const std::string& model, const char* recipe) {
  const std::string path = folder.put(
      "plan.yaml", "model: " + model + "\ndata: {train: [x.safetensors]}\ntrain: {batch: 64}\n");
  const Outcome outcome = run_program(
      folder, fmt::format("plan {} --json --device cuda --set recipe={}", path, recipe));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Json plan = Json::parse(outcome.out);
  Kept kept{.layers = 0, .peak = plan.at("peak_bytes")};
  for (const Json& layer : plan.at("kept_per_layer_bytes")) kept.layers += layer.get<double>();
  return kept;
}

TEST(ConvolutionalRuns, keep_less_under_coat_than_under_fp8_linear) {
  const ScratchFolder folder;
  for (const std::string& model :
       {std::string("{kind: resnet, cifar: true, image_size: 32, classes: 10}"),
        std::string("{kind: resnet, layer_type: bottleneck, image_size: 224, classes: 1000}"),
        kMobileNet}) {
    const Kept fp8 = kept_by(folder, model, "fp8_linear"), coat = kept_by(folder, model, "coat");
    EXPECT_LE(coat.layers, fp8.layers) << model;
    EXPECT_LE(coat.peak, fp8.peak) << model;
  }
  const Outcome refused =
      run_program(folder, "plan " + (folder / "plan.yaml") +
                              " --set 'recipe={base: coat, forward_reads: stored}'");
  EXPECT_THAT(refused.err, HasSubstr("recipe.forward_reads: expected unquantized for a network"));
}

TEST(ConvolutionalRuns, that_cannot_be_are_refused) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& model, const std::string& sets) {
    return test::train_encoder(folder, yaml(folder, model, "fp32"), sets).err;
  };
  EXPECT_THAT(error(kMobileNet, "--set model.output_stride=5"),
              HasSubstr("output_stride: expected 2, 4, 8, 16 or 32, got 5"));
  EXPECT_THAT(error(kMobileNet, "--set model.depth_multiplier=0"), HasSubstr("depth_multiplier"));
  EXPECT_THAT(error(kVgg, "--set model.depths=[1,1,1,1,1,1] --set model.hidden_sizes=[8]"),
              HasSubstr("hidden_sizes: expected as many as model.depths"));
  EXPECT_THAT(error(kVgg, "--set model.image_size=2"),
              HasSubstr("depths: expected no more stages than model.image_size = 2 can be halved"));
  EXPECT_THAT(error(kDensenet, "--set model.image_size=4"),
              HasSubstr("no more blocks than model.image_size = 4 can be halved"));
  EXPECT_THAT(error(kDensenet, "--set model.cifar=true"), HasSubstr("model.cifar"));
  EXPECT_THAT(error("{kind: resnet, image_size: 32, depths: [1], hidden_sizes: [8], classes: 3}",
                    "--set model.groups=2"),
              HasSubstr("groups: expected 1 with model.layer_type = basic, got 2"));
}

}  // namespace
}  // namespace octet::convolutional
