// Evaluation of vision transformers on pictures: those of other programs, and a run's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/json.h"
#include "cli/encoders/encoder_run.h"

namespace octet::encoders_pictures_test {
namespace {

using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using testing::HasSubstr;

const std::string kPictures = OCTET_TEST_DATA "/data/images";

struct SharedVit {
  std::string name, config, processor;
};
const SharedVit kCifar = {
    "cifar10",
    R"({"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 128,
        "intermediate_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8,
        "image_size": 32, "patch_size": 4, "num_channels": 3, "layer_norm_eps": 1e-05,
        "post_norm": true, "mlp_relu": true, "fused_qkv": true)",
    R"({"image_mean": [0.4914, 0.4822, 0.4465], "image_std": [0.2023, 0.1994, 0.201]})"};
const SharedVit kDigits = {
    "mnist",
    R"({"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 6, "num_attention_heads": 8,
        "image_size": 28, "patch_size": 7, "num_channels": 1, "layer_norm_eps": 1e-05,
        "fused_qkv": true, "qkv_bias": false, "final_norm": false, "classifier_hidden_size": 128,
        "attention_scale": 0.125)",
    R"({"image_mean": [0.1307], "image_std": [0.3081]})"};

class Pictures : public testing::Test {
 protected:
  void SetUp() override {
    if (!posix_files().exists(kPictures) ||
        !posix_files().exists(OCTET_TEST_DATA "/data/weights/vit"))
      GTEST_SKIP() << "the pictures are not there (CMake variable OCTET_TEST_DATA)";
  }

  Outcome evaluate(const std::string& model, const std::string& flags) const {
    return run_program(
        folder_, fmt::format("eval --json --model {} --task-data {} {}", model, kPictures, flags));
  }

  std::string put_model(const SharedVit& vit) const {
    std::string labels;
    for (int i = 0; i < 10; ++i) labels += fmt::format(R"({}"{}": "{}")", i > 0 ? ", " : "", i, i);
    const std::string folder = folder_ / vit.name;
    posix_files().create_directory(folder);
    folder_.put(vit.name + "/config.json", vit.config + R"(, "id2label": {)" + labels + "}}");
    folder_.put(vit.name + "/preprocessor_config.json", vit.processor);
    const auto weights = posix_files().read_bytes(
        fmt::format("{}/data/weights/vit/vit_{}.safetensors", OCTET_TEST_DATA, vit.name));
    write_atomically(posix_files(), folder + "/model.safetensors",
                     [&](FileWriter& file) { file.write(weights); });
    return folder;
  }

  const ScratchFolder folder_;
};

// PyTorch 2.15's figures of the same weights and pictures.
TEST_F(Pictures, vision_transformers_of_other_programs_are_as_right_as_under_pytorch) {
  const struct {
    const SharedVit& vit;
    double acc, top5, cross_entropy;
  } cases[] = {{kCifar, 0.75, 298.0 / 300, 0.676964}, {kDigits, 295.0 / 300, 1, 0.061392}};
  for (const auto& one : cases) {
    const Outcome outcome =
        evaluate(put_model(one.vit), "--limit 300 --batch 60 --tasks " + one.vit.name);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json row = Json::parse(outcome.out).at(0);
    EXPECT_EQ(row.at("n"), 300);
    EXPECT_DOUBLE_EQ(row.at("acc"), one.acc) << one.vit.name;
    EXPECT_DOUBLE_EQ(row.at("top5"), one.top5) << one.vit.name;
    EXPECT_NEAR(row.at("cross_entropy").get<double>(), one.cross_entropy, 1e-5) << one.vit.name;
  }
}

TEST_F(Pictures, a_run_is_evaluated_with_its_own_transforms_and_recipes_are_compared) {
  const std::string run = folder_ / "run";
  const std::string yaml = folder_.put(
      "vit.yaml",
      "model: {kind: vit, hidden: 32, layers: 1, heads: 2, ffn: 64, image_size: 28, patch_size: 7, "
      "channels: 1, classes: 10}\nrecipe: fp32\noptim: {lr: 3.0e-3, warmup: 2}\n"
      "data: {train: [" +
          kPictures + "/mnist/train-images-idx3-ubyte.gz], images: {mean: [0.13], std: [0.31]}}\n" +
          "train: {steps: 240, batch: 32, eval_every: 0, save_every: 0}\nout: " + run + "\n");
  const Outcome trained = run_program(folder_, "train --quiet " + yaml);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome outcome = evaluate(run, "--tasks mnist --limit 256 --batch 64 --recipe fp32,bf16");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json rows = Json::parse(outcome.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_GT(rows[0].at("acc").get<double>(), 0.3);  // chance is 0.1
  EXPECT_FALSE(rows[0].contains("difference"));
  EXPECT_NEAR(rows[1].at("difference").get<double>(),
              rows[0].at("cross_entropy").get<double>() - rows[1].at("cross_entropy").get<double>(),
              1e-9);
  EXPECT_NE(rows[1].at("difference").get<double>(), 0);
  EXPECT_THAT(posix_files().read_text(run + "/evaluations.jsonl"), HasSubstr(R"("task":"mnist")"));
  const Outcome converted = run_program(folder_, "convert " + run + " " + (folder_ / "model"));
  ASSERT_EQ(converted.code, 0) << converted.err;
  const Outcome again = evaluate(folder_ / "model", "--tasks mnist --limit 256 --batch 64");
  EXPECT_EQ(Json::parse(again.out).at(0).at("cross_entropy"), rows[0].at("cross_entropy"));
}

// The first and the last linear take 8-bit formats where an override names them.
TEST_F(Pictures, patches_and_classifier_are_quantized_where_they_are_named) {
  std::string out = "run";
  const auto yaml = [&](const std::string& override) {
    return folder_.put(
        "vit.yaml",
        "model: {kind: vit, hidden: 32, layers: 1, heads: 2, ffn: 64, image_size: 28, patch_size: "
        "7, channels: 1, classes: 10}\nrecipe: {base: fp8_linear, override: {" +
            override + "}}\noptim: {lr: 3.0e-3, warmup: 2}\ndata: {train: [" + kPictures +
            "/mnist/train-images-idx3-ubyte.gz], val_fraction: 0}\n" +
            "train: {steps: 100, batch: 32, eval_every: 0, save_every: 0}\nout: " +
            (folder_ / out) + "\n");
  };
  const auto loss = [&](const std::string& override) {
    const Outcome outcome = run_program(folder_, "train --quiet " + yaml(override));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Outcome evaluated = evaluate(folder_ / out, "--tasks mnist --limit 500 --batch 100");
    out += "-next";
    return Json::parse(evaluated.out).at(0).at("cross_entropy").get<double>();
  };
  const std::string outer = R"("patch_embeddings.projection": fp8_linear, classifier: fp8_linear)";
  const double without = loss(""), with = loss(outer);
  EXPECT_NE(with, without);
  EXPECT_LT(without, 1.9);  // chance is 2.3
  EXPECT_NEAR(with, without, 0.15);
  const Outcome plan = run_program(folder_, "plan --policy " + yaml(outer));
  EXPECT_THAT(plan.out, HasSubstr("vit.embeddings.patch_embeddings.projection x e4m3"));
  EXPECT_THAT(plan.out, HasSubstr("classifier                       x e4m3"));
  const Outcome star = run_program(folder_, "plan --policy " + yaml(R"("*": fp8_linear)"));
  EXPECT_THAT(star.out, testing::Not(HasSubstr("classifier ")));
  EXPECT_THAT(run_program(folder_, "plan " + yaml("embeddings: fp8_linear")).err,
              HasSubstr("expected a pattern that matches a linear"));
}

TEST_F(Pictures, what_does_not_fit_is_said) {
  const std::string model = put_model(kDigits);
  EXPECT_THAT(evaluate(model, "--tasks mnist,hellaswag").err,
              HasSubstr("expected pictures or texts, got both"));
  EXPECT_THAT(run_program(folder_, "eval --model " + model + " --tasks mnist").err,
              HasSubstr("--task-data: expected the folder"));
  EXPECT_THAT(run_program(folder_, "eval --model " + model + " --tasks mnist --task-data " +
                                       (folder_ / "none"))
                  .err,
              HasSubstr("none/mnist/t10k-images-idx3-ubyte.gz"));
}

// Pictures of three classes for a model of a few weights.
std::string pictures_yaml(const ScratchFolder& folder) {
  for (const char* name : {"gray.png", "rgb.png", "one_bit.png", "gray.jpg"}) {
    const std::string picture =
        posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/images/" + std::string(name));
    for (const char* part : {"ant/", "bee/", "cat/"})
      folder.put(std::string("set/") + part + name, picture);
  }
  return "model: {kind: vit, hidden: 8, layers: 1, heads: 2, ffn: 8, image_size: 8, patch_size: 4, "
         "classes: 3}\nrecipe: fp32\noptim: {warmup: 0}\ndata: {train: [" +
         (folder / "set") +
         "], val_fraction: 0.3}\ntrain: {batch: 2, save_every: 0}\nout: " + (folder / "run") + "\n";
}

TEST(PictureRuns, that_go_on_come_to_the_bits_of_one_that_was_not_stopped) {
  const ScratchFolder folder;
  test::expect_same_bits_resumed(folder, pictures_yaml(folder));
  EXPECT_EQ(test::metrics(folder / "parts").back().at("tokens"), 18);
}

// A run from before pictures were counted, one a row.
TEST(PictureRuns, that_counted_rows_of_tokens_go_on_with_pictures) {
  const ScratchFolder folder;
  const std::string yaml = pictures_yaml(folder);
  const Outcome begun = test::train_encoder(folder, yaml, "--set train.steps=2");
  ASSERT_EQ(begun.code, 0) << begun.err;
  const std::string at = "run/ckpt/step-000002/";
  Json manifest = Json::parse(posix_files().read_text(folder / at + "manifest.json"));
  ASSERT_EQ(manifest["tokens"], 4);
  manifest["tokens"] = 4 * 256;  // model.seq
  const std::string text = manifest.dump(1);
  folder.put(at + "manifest.json", text);
  Json marker = Json::parse(posix_files().read_text(folder / at + "COMPLETE"));
  marker["files"]["manifest.json"] = {
      {"bytes", text.size()},
      {"xxh64", fmt::format("{:016x}", xxh64(std::as_bytes(std::span(text))))}};
  folder.put(at + "COMPLETE", marker.dump(1));
  const Outcome outcome = test::train_encoder(folder, yaml, "--resume --set train.steps=3");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(test::metrics(folder / "run").back().at("tokens"), 6);
}

// By the data's reader, which names the picture, and not by the first step.
TEST(PictureClasses, more_than_the_model_has_are_refused) {
  const ScratchFolder folder;
  const std::string picture =
      posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/images/rgb.png");
  for (const char* name : {"ant", "bee", "cat"})
    folder.put(fmt::format("all/{}/1.png", name), picture);
  const std::string config = folder.put(
      "vit.yaml", fmt::format("model: {{kind: vit, hidden: 16, layers: 1, heads: 2, ffn: 32, "
                              "image_size: 8, patch_size: 4, classes: 2}}\nrecipe: fp32\n"
                              "data: {{val_fraction: 0, train: [{}]}}\n"
                              "train: {{steps: 1, batch: 3}}\nout: {}\n",
                              folder / "all", folder / "run"));
  const Outcome outcome = run_program(folder, "train --quiet " + config);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("1.png"));
  EXPECT_THAT(outcome.err, HasSubstr("expected a label below 2, got 2"));
}

}  // namespace
}  // namespace octet::encoders_pictures_test
