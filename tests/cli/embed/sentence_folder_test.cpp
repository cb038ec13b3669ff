// A folder of sentence-transformers through everything that reads and writes one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "cli/program_run.h"
#include "nn/hf_config.h"
#include "nn/model.h"
#include "unit/infer/put_arrays.h"

namespace octet::embed_sentence_folder_test {
namespace {

using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using testing::HasSubstr;

// A BERT of tests/fixtures/word_pieces whose vectors are those of [CLS], of 6 tokens at most.
class SentenceFolders : public testing::Test {
 protected:
  void SetUp() override {
    posix_files().create_directory(folder_ / "m");
    put_model(ModelKind::bert);
    folder_.put("m/vocab.txt",
                posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/word_pieces/vocab.txt"));
    folder_.put("m/modules.json",
                R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
    pool("cls");
    folder_.put("m/sentence_bert_config.json", R"({"max_seq_length": 6})");
    folder_.put("t.txt", "the model runs\nthe group has one scale of a token\n");
    std::string pairs;
    for (int i = 0; i < 4; ++i)
      pairs += fmt::format("{{\"anchor\": \"the {0} runs\", \"positive\": \"a {0} of a group\"}}\n",
                           std::vector{"model", "scale", "token", "group"}[static_cast<size_t>(i)]);
    folder_.put("p.jsonl", pairs);
  }

  // Its padding is [PAD], 0.
  void put_model(ModelKind kind) const {
    const ModelSpec spec = resolved({.kind = kind,
                                     .hidden = 16,
                                     .layers = 1,
                                     .heads = 2,
                                     .ffn = 24,
                                     .vocab = 421,
                                     .max_positions = 20,
                                     .head = ModelHead::features,
                                     .pad_token = 0});
    std::vector<test::ArrayToPut> arrays;
    for (const ParameterSpec& p : model_parameters(spec)) {
      std::vector<float> values(static_cast<size_t>(n_elems(p.shape)));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::sin(static_cast<float>(i * 7 + p.name.size())) * 0.3f;
      arrays.push_back(test::array_of(p.name, SafeDtype::f32, p.shape, values));
    }
    test::put_arrays(folder_ / "m/model.safetensors", arrays);
    folder_.put("m/config.json", hf_config_text(spec));
  }

  void pool(const std::string& mode) const {
    folder_.put("m/1_Pooling/config.json", R"({"pooling_mode": ")" + mode + "\"}");
  }

  std::string ok(const std::string& arguments) const {
    const Outcome outcome = run_program(folder_, arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
    return outcome.out;
  }

  std::vector<std::byte> vectors(const std::string& model) const {
    ok(fmt::format("embed --model {} --texts {} --out {}", folder_ / model, folder_ / "t.txt",
                   folder_ / "x.npy"));
    auto bytes = posix_files().read_bytes(folder_ / "x.npy");
    posix_files().remove(folder_ / "x.npy");
    return bytes;
  }

  const ScratchFolder folder_;
};

TEST_F(SentenceFolders, leave_as_they_came) {
  const auto expected = vectors("m");
  ok(fmt::format("convert {} {}", folder_ / "m", folder_ / "c"));
  EXPECT_EQ(vectors("c"), expected);
  folder_.put("c.yaml", fmt::format(R"(
model: {{path: {}, head: embeddings, seq: 16}}
recipe: fp32
optim: {{lr: 1.0e-30, weight_decay: 0}}
data: {{train: [{}], val_fraction: 0}}
train: {{steps: 1, batch: 8, eval_every: 0, save_every: 0, export: f32}}
out: {}
)",
                                    folder_ / "m", folder_ / "p.jsonl", folder_ / "r"));
  ok(fmt::format("train --quiet {}", folder_ / "c.yaml"));
  EXPECT_EQ(vectors("r/export"), expected);
  ok(fmt::format("train --quiet --overwrite {}", folder_ / "c.yaml"));  // over the old export
  EXPECT_EQ(vectors("r"), expected);
  pool("mean");
  EXPECT_NE(vectors("m"), expected);
}

TEST_F(SentenceFolders, cut_vectors_where_they_say_so) {
  constexpr size_t kTexts = 2, kWidth = 16, kCut = 5, kValue = sizeof(float);
  const auto whole = vectors("m");
  folder_.put("m/config_sentence_transformers.json", R"({"truncate_dim": 5})");
  const auto cut = vectors("m");
  for (size_t text = 0; text < kTexts; ++text) {  // rows are at the end of both files
    const auto row = [&](const std::vector<std::byte>& file, size_t width) {
      const auto first = std::span(file).last((kTexts - text) * width * kValue);
      return std::vector<std::byte>(first.begin(), first.begin() + kCut * kValue);
    };
    EXPECT_EQ(row(cut, kCut), row(whole, kWidth)) << text;
  }
  folder_.put("m/config_sentence_transformers.json", R"({"truncate_dim": 99})");
  EXPECT_EQ(vectors("m"), whole);
}

// RoBERTa's positions are counted from its padding's, which transformers does not count.
TEST_F(SentenceFolders, of_roberta_tell_texts_that_hold_its_padding) {
  put_model(ModelKind::roberta);
  folder_.put("t.txt", "the model runs\nthe [PAD] group\n");
  const Outcome outcome =
      run_program(folder_, fmt::format("embed --model {} --texts {} --out {}", folder_ / "m",
                                       folder_ / "t.txt", folder_ / "x.npy"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("1 of 2 texts hold the padding's token (0)"));
}

TEST_F(SentenceFolders, are_evaluated_with_their_pooling) {
  const auto nll = [&] {
    const std::string table = ok(fmt::format("eval --json --model {} --data {} --batch 8",
                                             folder_ / "m", folder_ / "p.jsonl"));
    return nlohmann::json::parse(table).at(0).at("nll").get<double>();
  };
  const double cls = nll();
  pool("mean");
  EXPECT_NE(nll(), cls);
  pool("max");
  const Outcome other = run_program(
      folder_, fmt::format("eval --model {} --data {}", folder_ / "m", folder_ / "p.jsonl"));
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, HasSubstr("expected one mode, mean or cls, got max"));
}

}  // namespace
}  // namespace octet::embed_sentence_folder_test
