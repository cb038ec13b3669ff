// Weights of a model's folder that are NaN, Inf, or more than a type holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"
#include "io/safetensors.h"

namespace octet::train_nonfinite_weights_test {
namespace {

using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kElement = "element [0,5] of 'lm_head.weight' [256,32]: expected ";

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::current_path(folder_.path());
    run("train tiny.yaml --quiet --set train.steps=1 --set optim.warmup=0");
    run("convert run model --quiet --dtype f32");
  }
  void TearDown() override { std::filesystem::current_path(before_); }
  Outcome outcome_of(const std::string& arguments) { return run_program(folder_, arguments); }
  void run(const std::string& arguments) {
    const Outcome outcome = outcome_of(arguments);
    ASSERT_EQ(outcome.code, 0) << arguments << ": " << outcome.err;
  }
  void expect_refused(const std::string& arguments, const std::string& said) {
    const Outcome outcome = outcome_of(arguments);
    EXPECT_EQ(outcome.code, 3) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(said)) << arguments;
  }

  // Element 5 of the folder's tensor becomes this.
  void set_weight(float value, const std::string& name = kHead) {
    const std::string path = folder_ / "model/model.safetensors";
    std::string bytes = posix_files().read_text(path);
    const SafetensorsReader file = SafetensorsReader::open(posix_files(), path);
    const std::vector<std::byte> old = file.read(name);
    const std::string whole(reinterpret_cast<const char*>(old.data()), old.size());
    const size_t at = bytes.find(whole);
    ASSERT_NE(at, std::string::npos);
    std::memcpy(bytes.data() + at + 5 * sizeof(float), &value, sizeof value);
    write_atomically(posix_files(), path, bytes);
  }
  float weight(const std::string& folder, const std::string& name = kHead) {
    const SafetensorsReader file =
        SafetensorsReader::open(posix_files(), folder_ / (folder + "/model.safetensors"));
    float value = 0;
    std::memcpy(&value, file.read(name).data() + 5 * sizeof(float), sizeof value);
    return value;
  }
  std::string train(const std::string& more) {
    return "train of_folder.yaml --overwrite --quiet " + more;
  }

  const std::filesystem::path before_ = std::filesystem::current_path();
  const ScratchFolder folder_;
  const std::string yaml_ = folder_.put("tiny.yaml", test::tiny_yaml(folder_));
  const std::string of_folder_ =
      folder_.put("of_folder.yaml",
                  "model: {path: model, seq: 24}\n"
                  "data: {train: [text.txt], tokenizer: bytes}\n"
                  "train: {steps: 2, batch: 2, eval_every: 0, save_every: 0}\n"
                  "out: tuned\n");
};

TEST_F(Weights, that_are_not_finite_are_named_and_refused_unless_they_are_allowed) {
  for (const float value : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
    set_weight(value);
    const std::string said = std::string(kElement) + "a finite weight, got ";
    expect_refused("eval --model model --data text.txt", said);
    expect_refused("convert model copy --quiet", said);
    expect_refused("convert model half --quiet --dtype bf16", said);
    expect_refused(train(""), said);
    expect_refused("generate --model model --prompt a --max-tokens 1", said);
  }
  EXPECT_EQ(outcome_of("eval --model model --data text.txt --allow-nonfinite").code, 4);
  run("convert model all --quiet --allow-nonfinite");
  EXPECT_TRUE(std::isnan(weight("all")));
  EXPECT_EQ(outcome_of(train("--set model.allow_nonfinite=true")).code, 4);
}

TEST_F(Weights, beyond_fp16_are_refused_where_it_is_computed_in) {
  set_weight(1e5F);
  const std::string said = std::string(kElement) + "what fp16 holds, got 100000";
  expect_refused(train("--set recipe=fp16"), said);
  expect_refused("eval --model model --data text.txt --recipe fp16", said);
  run(train("--set recipe=bf16"));
  // Allowed it is the Inf that it rounds to, not 65504: no step is applied.
  EXPECT_EQ(outcome_of(train("--set recipe=fp16 --set model.allow_nonfinite=true")).code, 4);
  for (const auto& line : test::metrics(folder_ / "tuned")) EXPECT_EQ(line.at("skipped"), 1);
}

// An embedding of a token that never occurs: the update reads and writes its master alone.
TEST_F(Weights, above_256_are_kept_by_fp16_masters_with_a_scale) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  set_weight(1000.0F, kEmbedding);
  run(train("--set recipe=bf16 --set optim.master=fp16_scaled --set optim.weight_decay=0"));
  run("convert tuned kept --quiet --dtype f32");
  EXPECT_EQ(weight("kept", kEmbedding), 1000.0F);
}

}  // namespace
}  // namespace octet::train_nonfinite_weights_test
