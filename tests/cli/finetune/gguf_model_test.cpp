// --model FILE.gguf: what is read of the file is what the folder has that convert makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/finetune/small_model.h"
#include "cli/program_run.h"

namespace octet::finetune_gguf_model_test {
namespace {

using test::Outcome;
using testing::HasSubstr;

// A model in Q8_0, with GPT-2's kind of vocabulary, as a file and as a folder.
class GgufModel : public testing::Test {
 protected:
  GgufModel() {
    ModelSpec spec = test::small_spec();
    spec.ffn = 64;
    spec.vocab = 420;
    const std::string model = test::put_model(folder_, spec);
    folder_.put("model/tokenizer.json",
                posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2.json"));
    expect_done("convert " + model + " " + file_ + " --dtype q8_0");
    expect_done("convert " + file_ + " " + same_);
    text_ = folder_.put("text.txt", std::string(40, 'a') + " the model reads a text of its own\n");
  }

  Outcome run(const std::string& arguments) const {
    return test::run_shell(folder_, "XDG_CACHE_HOME=" + folder_ / "cache" + " " OCTET_PROGRAM " " +
                                        arguments + " --quiet </dev/null");
  }
  std::string expect_done(const std::string& arguments) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << ": " << outcome.err;
    return outcome.out;
  }
  Json losses(const std::string& run) const {
    Json all = Json::array();
    for (const Json& step : test::metrics(folder_ / run)) all.push_back(step.at("loss_bits"));
    return all;
  }

  test::ScratchFolder folder_;
  std::string file_ = folder_ / "m.gguf", same_ = folder_ / "same", text_;
};

TEST_F(GgufModel, is_evaluated_and_writes_as_its_folder) {
  const auto nats = [&](const std::string& model) {
    const Json rows = Json::parse(expect_done("eval --json --model " + model + " --data " + text_));
    return rows.at(0).at("nll");
  };
  EXPECT_EQ(nats(file_), nats(same_));
  const std::string flags = " --prompt 'the model' --max-tokens 8 --temperature 0";
  EXPECT_EQ(expect_done("generate --model " + file_ + flags),
            expect_done("generate --model " + same_ + flags));
  // Without weights, and again in the same place.
  const auto entries = posix_files().list(folder_ / "cache/octet/gguf");
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_FALSE(
      posix_files().exists(folder_ / "cache/octet/gguf/" + entries[0].name + "/model.safetensors"));
}

TEST_F(GgufModel, is_loaded_beside_reading_its_bytes) {
  const Json rows =
      Json::parse(expect_done("bench load " + file_ + " --recipes fp32,bf16 --rounds 1 --json"));
  std::vector<std::string> names;
  for (const Json& row : rows) {
    names.push_back(row.at("name"));
    for (const char* key : {"value", "floor", "ratio"}) EXPECT_GT(row.at(key), 0) << row;
    EXPECT_EQ(row.at("baseline"), "reading and decoding");
  }
  EXPECT_THAT(names,
              testing::ElementsAre("load fp32", "load fp32: cpu", "load bf16", "load bf16: cpu"));
  const Outcome other = run("bench load " + text_);
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("[bench load] expected a GGUF file, got"));
}

TEST_F(GgufModel, is_tuned_as_its_folder_and_missed_where_it_is_gone) {
  const std::string talks = test::put_talks(folder_, 20);
  const auto train = [&](const std::string& model, const std::string& out, const char* more) {
    expect_done("train --model " + model + " --data " + talks + " --out " + (folder_ / out) +
                " --recipe fp32 --lora-rank 2 --set train.batch=4 --set train.export=none --set "
                "train.epochs=0 --set optim.schedule=constant --set train.steps=" +
                more);
  };
  train(same_, "of_folder", "3");
  train(file_, "of_file", "2");
  train(file_, "of_file", "3 --resume");
  EXPECT_EQ(losses("of_file"), losses("of_folder"));
  posix_files().rename(file_, folder_ / "moved.gguf");
  const Outcome outcome = run("eval --model " + folder_ / "of_file" + " --data " + text_);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("expected the GGUF file '" + file_ + "', got none"));
}

TEST_F(GgufModel, what_is_none_is_refused) {
  const std::string broken = folder_.put("broken.gguf", "GGUF");
  for (const std::string& command : std::vector<std::string>{
           "eval --data " + text_, "generate --prompt a", "train --data " + text_}) {
    const Outcome outcome = run(command + " --model " + broken);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("broken.gguf"));
  }
  const Outcome strict = run("eval --strict --model " + file_ + " --data " + text_);
  EXPECT_EQ(strict.code, 2);
  EXPECT_THAT(strict.err, HasSubstr("--strict: expected a model folder"));
  const Outcome homeless =
      test::run_shell(folder_, "env -u XDG_CACHE_HOME -u HOME " OCTET_PROGRAM " eval --model " +
                                   file_ + " --data " + text_ + " </dev/null");
  EXPECT_EQ(homeless.code, 2);
  EXPECT_THAT(homeless.err, HasSubstr("expected HOME or XDG_CACHE_HOME"));
}

}  // namespace
}  // namespace octet::finetune_gguf_model_test
