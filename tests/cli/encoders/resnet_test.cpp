// Residual networks: public weights, runs under every kind of recipe, and what exports give.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/json.h"
#include "cli/encoders/bright_records.h"
#include "cli/encoders/cifar_folder.h"
#include "cli/encoders/encoder_run.h"
#include "io/safetensors.h"
#include "unit/infer/put_arrays.h"

namespace octet::encoders_resnet_test {
namespace {

using test::bright_records;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using testing::HasSubstr;

// A network of 7 convolutions.
std::string resnet_yaml(const ScratchFolder& folder, const std::string& recipe) {
  const std::string train = folder.put("train.bin", bright_records(90, "train")),
                    val = folder.put("val.bin", bright_records(30, "val"));
  return "model: {kind: resnet, cifar: true, image_size: 32, depths: [1, 2], hidden_sizes: [8, "
         "16], "
         "embedding_size: 8, classes: 3}\nrecipe: " +
         recipe + "\noptim: {lr: 3.0e-3, warmup: 2}\ndata: {train: [" + train + "], val: [" + val +
         "]}\ntrain: {steps: 24, batch: 10, eval_every: 12, save_every: 0}\nout: " +
         (folder / "run") + "\n";
}

Json evaluated(const ScratchFolder& folder, const std::string& model, const std::string& more) {
  const Outcome outcome = run_program(
      folder, fmt::format("eval --json --model {} --data {} {}", model, folder / "val.bin", more));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out);
}

double loss_of(const Json& rows, size_t i = 0) {
  return rows.at(i).at("cross_entropy").get<double>();
}

TEST(ResNetRuns, learn_under_each_kind_of_recipe_and_go_on_with_the_same_bits) {
  for (const char* recipe : {"bf16", "fp8_linear", "coat", "hif8"}) {
    SCOPED_TRACE(recipe);
    const ScratchFolder folder;
    const std::string yaml = resnet_yaml(folder, recipe);
    const Outcome outcome = test::train_encoder(folder, yaml);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_LT(test::val_losses(folder / "run").back(), 0.95);  // chance is 1.10
    test::expect_same_bits_resumed(folder, yaml, "--set train.eval_every=0 ");
  }
}

TEST(ResNetRuns, accumulate_and_share_the_statistics_of_all_their_rows) {
  const ScratchFolder folder;
  const std::string yaml = resnet_yaml(folder, "fp32");
  const auto statistic = [&](const std::string& out, const std::string& name,
                             const std::string& more, int step = 1) {
    const Outcome outcome =
        test::train_encoder(folder, yaml,
                            "--set optim.lr=1e-9 --set optim.schedule=constant --set "
                            "train.steps=1 --set train.eval_every=0 " +
                                more + " --overwrite --set out=" + (folder / out));
    EXPECT_EQ(outcome.code, step == 1 ? 0 : 4) << outcome.err;
    const auto reader = SafetensorsReader::open(
        posix_files(), folder / out + fmt::format("/ckpt/step-{:06}/model.safetensors", step));
    const auto bytes = reader.read(reader.at(name).name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const std::string mean = "bn1.running_mean", variance = "bn1.running_var";
  const auto whole = statistic("whole", mean, "--set train.batch=12");
  const auto parts = statistic("parts", mean, "--set train.batch=4 --set train.accumulate=3");
  const auto ranks = statistic("ranks", mean, "--set train.batch=6 --ranks 2");
  ASSERT_EQ(whole.size(), 8u);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NE(whole[i], 0);
    EXPECT_NEAR(parts[i], whole[i], 1e-6);
    EXPECT_NEAR(ranks[i], whole[i], 1e-6);
  }
  // A step that is skipped moves nothing: the weights are thrown out of all bounds before.
  const std::string bad =
      "--set optim.lr=1000 --set optim.warmup=0 --set optim.weight_decay=10 --set optim.clip=1 "
      "--set train.max_nonfinite_steps=100 ";
  for (const char* keys :
       {"--set train.batch=6 ", "--set train.batch=3 --set train.accumulate=2 "}) {
    const auto at = [&](int step) {
      return statistic("bad", variance, bad + keys + fmt::format("--set train.steps={}", step),
                       step);
    };
    const auto before = at(16);
    EXPECT_EQ(at(17), before);
    EXPECT_EQ(test::metrics(folder / "bad").back().at("skipped"), 1);
    for (const float value : before) EXPECT_TRUE(std::isfinite(value));
  }
  // Also of frozen norms, which is told.
  const Outcome frozen = run_program(folder, "train " + folder.put("f.yaml", yaml) +
                                                 " --set train.steps=1 --set train.freeze=[bn1.*] "
                                                 "--overwrite --set out=" +
                                                 (folder / "frozen"));
  EXPECT_THAT(frozen.err, testing::HasSubstr("train.freeze: the running means and variances of 1 "
                                             "batch norms that it names follow the batches"));
  // 0.9 of the first 1, and more.
  for (const float value : statistic("again", variance, "--set train.batch=12"))
    EXPECT_GT(value, 0.9f);
}

TEST(ResNetRuns, are_exported_and_give_the_same_at_every_batch_size) {
  const ScratchFolder folder;
  const Outcome trained = test::train_encoder(folder, resnet_yaml(folder, "bf16"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string run = folder / "run", model = folder / "model", exact = folder / "exact";
  for (const std::string& flags : {model + " --dtype bf16", exact + " --dtype f32"}) {
    const Outcome converted = run_program(folder, fmt::format("convert {} {}", run, flags));
    ASSERT_EQ(converted.code, 0) << converted.err;
  }
  const Json of_run = evaluated(folder, run, "");
  for (const char* batch : {"1", "7", "30"}) {
    EXPECT_EQ(loss_of(evaluated(folder, model, fmt::format("--recipe bf16 --batch {}", batch))),
              loss_of(of_run))
        << batch;
  }
  // Names, shapes and types as files of this kind have them.
  const auto reader = SafetensorsReader::open(posix_files(), model + "/model.safetensors");
  EXPECT_EQ(reader.at("layer2.0.conv1.weight").shape, (Shape{16, 8, 3, 3}));
  EXPECT_EQ(reader.at("layer2.0.conv1.weight").stored, SafeDtype::bf16);
  EXPECT_EQ(reader.at("layer2.1.bn2.running_var").stored, SafeDtype::f32);
  EXPECT_EQ(reader.at("linear.weight").shape, (Shape{3, 16}));
  // A folder is read back as it was written.
  const std::string again = folder / "again";
  ASSERT_EQ(run_program(folder, fmt::format("convert {} {} --dtype f32", exact, again)).code, 0);
  EXPECT_EQ(posix_files().read_text(again + "/model.safetensors"),
            posix_files().read_text(exact + "/model.safetensors"));
}

TEST(ResNetRuns, are_quantized_with_their_norms_in_the_convolutions) {
  const ScratchFolder folder;
  const Outcome trained = test::train_encoder(folder, resnet_yaml(folder, "fp32"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string run = folder / "run", model = folder / "model";
  const std::string ptq = "ptq --format e4m3 --calib " + (folder / "train.bin") + " --model ";
  EXPECT_THAT(run_program(folder, ptq + run + " --method max --out " + (folder / "none")).err,
              HasSubstr("[fold_norms] expected a model folder of kind resnet"));
  ASSERT_EQ(run_program(folder, fmt::format("convert {} {} --dtype f32", run, model)).code, 0);
  const double exact = loss_of(evaluated(folder, model, "--recipe fp32"));
  const std::string folded = folder / "folded";
  ASSERT_EQ(run_program(folder, fmt::format("convert {} {} --fold-norms", model, folded)).code, 0);
  EXPECT_NEAR(loss_of(evaluated(folder, folded, "--recipe fp32")), exact, 2e-6);
  const auto reader = SafetensorsReader::open(posix_files(), folded + "/model.safetensors");
  EXPECT_EQ(reader.at("conv1.bias").shape, Shape{8});
  EXPECT_EQ(reader.find("bn1.weight"), nullptr);
  EXPECT_THAT(
      run_program(folder, fmt::format("convert {} {} --dtype fp8-block", model, folder / "none"))
          .err,
      HasSubstr("expected a model of plain linears, got resnet"));
  for (const std::string& flags :
       {std::string("--method max"), std::string("--method direct"),
        std::string("--method max --weights channel --dequantize bf16")}) {
    const std::string out = folder / std::to_string(name_hash(flags));
    const Outcome outcome = run_program(folder, ptq + model + " " + flags + " --out " + out);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("layers.1.conv2"));
    const double loss = loss_of(evaluated(folder, out, "--recipe fp32"));
    EXPECT_NE(loss, exact);
    EXPECT_NEAR(loss, exact, 0.03) << flags;
  }
  const Json config = Json::parse(
      posix_files().read_text(folder / std::to_string(name_hash("--method max")) + "/config.json"));
  EXPECT_EQ(config.at("folded_norms"), true);
}

// Writes a model's folder again with these tensors of f32 beside or in place of its own.
std::string with_tensors(const ScratchFolder& folder, const std::string& model, const char* name,
                         const std::map<std::string, std::vector<float>>& changed) {
  const std::string out = folder / name;
  posix_files().create_directories(out);
  const auto reader = SafetensorsReader::open(posix_files(), model + "/model.safetensors");
  std::vector<test::ArrayToPut> arrays;
  for (const StoredTensor& tensor : reader.tensors())
    if (!changed.contains(tensor.name)) arrays.push_back({tensor, reader.read(tensor.name)});
  for (const auto& [tensor, values] : changed)
    arrays.push_back(test::array_of(tensor, SafeDtype::f32, {std::ssize(values)}, values));
  test::put_arrays(out + "/model.safetensors", arrays);
  folder.put(std::string(name) + "/config.json", posix_files().read_text(model + "/config.json"));
  return out;
}

TEST(ResNetRuns, norms_that_cannot_be_folded_are_named) {
  const ScratchFolder folder;
  const Outcome trained = test::train_encoder(folder, resnet_yaml(folder, "fp32"),
                                              "--set train.steps=2 --set train.eval_every=0");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string model = folder / "model";
  ASSERT_EQ(
      run_program(folder, fmt::format("convert {} {} --dtype f32", folder / "run", model)).code, 0);
  const std::vector<float> ones(8, 1.0f);
  std::vector<float> damaged = ones, negative = ones;
  damaged[2] = NAN, negative[3] = -1;
  const struct {
    std::map<std::string, std::vector<float>> tensors;
    std::string error;
  } cases[] = {{{{"conv1.bias", ones}}, "expected 'conv1.bias' or the norm 'bn1.bias', got both"},
               {{{"bn1.running_var", damaged}}, "channel 2 of 'bn1': expected finite statistics"},
               {{{"bn1.running_var", negative}}, "channel 3 of 'bn1': expected finite statistics"},
               {{{"bn1.running_mean", damaged}}, "channel 2 of 'bn1': expected finite statistics"}};
  int n = 0;
  for (const auto& one : cases) {
    const std::string damaged_model =
        with_tensors(folder, model, fmt::format("m{}", n).c_str(), one.tensors);
    const Outcome outcome = run_program(
        folder, fmt::format("convert {} {} --fold-norms", damaged_model, folder / "none"));
    EXPECT_EQ(outcome.code, 3) << n;
    EXPECT_THAT(outcome.err, HasSubstr(one.error));
    ++n;
  }
  EXPECT_THAT(
      run_program(folder, fmt::format("convert {} {} --dtype hif8", model, folder / "none")).err,
      HasSubstr("[convert] --dtype hif8: expected a model of plain linears, got resnet"));
}

// The weights of a patch projection have four axes in files, in the order of memory.
TEST(PictureRuns, dequantized_weights_lie_as_in_the_model) {
  const ScratchFolder folder;
  std::string yaml = resnet_yaml(folder, "fp32");
  yaml.replace(yaml.find("model:"), yaml.find('\n') - yaml.find("model:"),
               "model: {kind: vit, image_size: 32, patch_size: 8, hidden: 16, layers: 1, heads: 2, "
               "ffn: 32, classes: 3}");
  ASSERT_EQ(test::train_encoder(folder, yaml).code, 0);
  const std::string model = folder / "model";
  ASSERT_EQ(
      run_program(folder, fmt::format("convert {} {} --dtype f32", folder / "run", model)).code, 0);
  const double exact = loss_of(evaluated(folder, model, "--recipe fp32"));
  const Outcome outcome = run_program(
      folder, fmt::format("ptq --format e4m3 --method max --weights channel --dequantize bf16 "
                          "--calib {} --model {} --out {}",
                          folder / "train.bin", model, folder / "q"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("patch_embeddings"));
  EXPECT_NEAR(loss_of(evaluated(folder, folder / "q", "--recipe fp32")), exact, 0.01);
}

TEST(ResNetRuns, that_cannot_be_are_refused) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& sets) {
    return test::train_encoder(folder, resnet_yaml(folder, "fp32"), sets).err;
  };
  EXPECT_THAT(error("--set model.depths=[1,2,3]"),
              HasSubstr("hidden_sizes: expected as many as model.depths = [1, 2, 3], got [8, 16]"));
  EXPECT_THAT(error("--set model.layer_type=bottleneck"),
              HasSubstr("layer_type: expected basic with model.cifar = true, got bottleneck"));
  EXPECT_THAT(error("--set model.depths=[1,0]"), HasSubstr("a list of integers"));
  EXPECT_THAT(error("--set lora.rank=2"), HasSubstr("lora"));
}

// Figures of PyTorch 2.11 on the same files, rows 1 to 300.
TEST(ResNetFiles, of_cifar_are_as_right_as_under_pytorch) {
  if (!posix_files().exists(test::kCifarWeights))
    GTEST_SKIP() << "the weights are not there (CMake variable OCTET_TEST_DATA)";
  const ScratchFolder folder;
  const struct {
    int layers;
    double right, cross_entropy;
  } cases[] = {{20, 251, 0.786455512}, {56, 255, 0.91108948}};
  for (const auto& [layers, right, cross_entropy] : cases) {
    const std::string name = test::put_cifar_folder(folder, layers);
    const Outcome outcome = test::evaluate_cifar(folder, name, "--limit 300 --batch 60");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json row = Json::parse(outcome.out).at(0);
    EXPECT_DOUBLE_EQ(row.at("acc"), right / 300) << name;
    EXPECT_NEAR(row.at("cross_entropy").get<double>(), cross_entropy, 1e-5) << name;
  }
}

}  // namespace
}  // namespace octet::encoders_resnet_test
