// Vectors of texts, against the model's graph run by the interpreter on each text alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends/cpu/reference/reference.h"
#include "cli/program_run.h"
#include "io/safetensors.h"
#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "unit/infer/put_arrays.h"

namespace octet::embed_test {
namespace {

using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using testing::HasSubstr;

constexpr const char* kGolden = OCTET_SOURCE_DIR "/tests/golden/encoders/bert_features.safetensors";
constexpr double kTolerance = 2e-6;  // f32 of values up to 4
constexpr int32_t kCls = 2, kSep = 3;

using Rows = std::vector<std::vector<double>>;

// A folder of BERT of two layers, width 32, 24 positions, whose words are w4 to w60.
class Embed : public testing::Test {
 protected:
  void SetUp() override {
    const auto reader = SafetensorsReader::open(posix_files(), kGolden);
    const std::string config = reader.metadata().at("config");
    spec_ = parse_hf_config(config, "config.json");
    std::vector<test::ArrayToPut> arrays;
    for (const StoredTensor& tensor : reader.tensors()) {
      if (!tensor.name.starts_with("w:")) continue;
      const std::string name = tensor.name.substr(2);
      const std::vector<std::byte> bytes = reader.read(tensor.name);
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      arrays.push_back(test::array_of(name, SafeDtype::f32, tensor.shape, values));
      if (const auto parameter = parameter_name(spec_, name))
        weights_[*parameter] = {values.begin(), values.end()};
    }
    posix_files().create_directory(model_);
    test::put_arrays(model_ + "/model.safetensors", arrays);
    folder_.put("model/config.json", config);
    std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
    for (int i = 4; i < spec_.vocab; ++i) words += fmt::format("w{}\n", i);
    folder_.put("model/vocab.txt", words);
  }

  // The features of [CLS] words [SEP].
  Rows features(const std::vector<int>& words) const {
    std::vector<double> tokens = {kCls};
    tokens.insert(tokens.end(), words.begin(), words.end());
    tokens.push_back(kSep);
    const auto n = static_cast<int64_t>(tokens.size());
    reference::Tensors inputs = weights_;
    inputs["tokens"] = tokens;
    inputs["token_types"] = std::vector<double>(tokens.size(), 0);
    inputs["key_ends"] = std::vector<double>(tokens.size(), static_cast<double>(n));
    for (int64_t i = 0; i < n; ++i) inputs["positions"].push_back(static_cast<double>(i));
    const Graph graph = build_model(spec_, {.batch = 1, .seq = n}, ModelOutputs::outputs).graph;
    const auto values = reference::interpret(graph, inputs).at("features");
    Rows rows;
    for (int64_t i = 0; i < n; ++i) {
      rows.emplace_back(values.begin() + i * spec_.hidden, values.begin() + (i + 1) * spec_.hidden);
    }
    return rows;
  }

  static std::vector<double> mean(const Rows& rows) {
    std::vector<double> sum(rows[0].size());
    for (const auto& row : rows) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i] / static_cast<double>(rows.size());
    }
    return sum;
  }
  static std::vector<double> normalized(std::vector<double> x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    for (double& value : x) value /= std::sqrt(squares);
    return x;
  }

  Outcome embed(const std::string& texts, const std::string& flags = "") const {
    return run_program(folder_, fmt::format("embed --overwrite --model {} --texts {} --out {} {}",
                                            model_, texts, folder_ / "out.npy", flags));
  }

  // NumPy's header of 2 dimensions, then f32.
  Rows read_out() const {
    const std::vector<std::byte> bytes = posix_files().read_bytes(folder_ / "out.npy");
    const std::string header(reinterpret_cast<const char*>(bytes.data()), 128);
    EXPECT_THAT(header, HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': ("));
    EXPECT_THAT(header, HasSubstr(fmt::format(", {}), }}", spec_.hidden)));
    const size_t row_bytes = static_cast<size_t>(spec_.hidden) * sizeof(float);
    Rows rows;
    for (size_t at = 128; at < bytes.size(); at += row_bytes) {
      std::vector<float> row(static_cast<size_t>(spec_.hidden));
      std::memcpy(row.data(), bytes.data() + at, row_bytes);
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  }

  static void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], kTolerance) << i;
  }

  const ScratchFolder folder_;
  const std::string model_ = folder_ / "model";
  ModelSpec spec_;
  reference::Tensors weights_;
};

TEST_F(Embed, texts_of_all_lengths_have_the_normalized_means_of_their_tokens_in_order) {
  const std::string texts =
      folder_.put("texts.txt", "w4 w5\n\nw17 w60 w9 w11 w4 w4 w30 w31 w32\r\nw8\nw12 w13 w14");
  const Outcome outcome = embed(texts, "--batch 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no modules.json"));
  const std::vector<std::vector<int>> words = {
      {4, 5}, {}, {17, 60, 9, 11, 4, 4, 30, 31, 32}, {8}, {12, 13, 14}};
  const Rows got = read_out();
  ASSERT_EQ(got.size(), words.size());
  for (size_t i = 0; i < words.size(); ++i)
    expect_near(got[i], normalized(mean(features(words[i]))));
}

TEST_F(Embed, the_folder_says_how_texts_are_pooled_and_cut) {
  folder_.put("model/modules.json",
              R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
          {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
  posix_files().create_directory(model_ + "/1_Pooling");
  folder_.put("model/1_Pooling/config.json",
              R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  folder_.put("model/sentence_bert_config.json", R"({"max_seq_length": 4})");
  const std::string texts =
      folder_.put("texts.jsonl", "{\"text\": \"w4 w5 w6\"}\n\"w7\"\n{\"text\": \"w9 w8\"}\n");
  const Outcome outcome = embed(texts);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("1 of 3 texts lost their ends: the longest has 5 tokens"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("modules.json")));
  Rows got = read_out();
  ASSERT_EQ(got.size(), 3u);
  expect_near(got[0], features({4, 5})[0]);
  expect_near(got[1], features({7})[0]);
  expect_near(got[2], features({9, 8})[0]);

  ASSERT_EQ(embed(texts, "--pooling mean --no-normalize --max-tokens 10").code, 0);
  expect_near(read_out().at(0), mean(features({4, 5, 6})));
}

TEST_F(Embed, texts_are_as_long_as_the_folder_or_its_tokenizer_says) {
  const std::string texts = folder_.put("texts.txt", "w4 w5 w6\n");
  const auto row = [&] {
    const Outcome outcome = embed(texts, "--pooling mean --no-normalize");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_out().at(0);
  };
  folder_.put("model/tokenizer_config.json",
              R"({"model_max_length": 1000000000000000019884624838656})");
  expect_near(row(), mean(features({4, 5, 6})));
  folder_.put("model/tokenizer_config.json", R"({"model_max_length": 4})");
  expect_near(row(), mean(features({4, 5})));
  folder_.put("model/sentence_bert_config.json", R"({"transformer_task": "feature-extraction"})");
  expect_near(row(), mean(features({4, 5})));
  folder_.put("model/sentence_bert_config.json", R"({"max_seq_length": 3})");
  expect_near(row(), mean(features({4})));
}

TEST_F(Embed, no_file_is_replaced_unasked) {
  const std::string texts = folder_.put("texts.txt", "w4\n");
  folder_.put("out.npy", "mine");
  const std::string command =
      "embed --model " + model_ + " --texts " + texts + " --out " + (folder_ / "out.npy");
  const Outcome outcome = run_program(folder_, command);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("or --overwrite"));
  EXPECT_EQ(posix_files().read_text(folder_ / "out.npy"), "mine");
  EXPECT_EQ(run_program(folder_, command + " --overwrite").code, 0);
}

TEST_F(Embed, what_is_not_understood_is_refused_by_name) {
  const std::string texts = folder_.put("texts.txt", "w4\n");
  folder_.put("model/modules.json", R"([{"path": "", "type": "sentence_transformers.a.Transformer"},
      {"path": "1_Pooling", "type": "sentence_transformers.a.Pooling"},
      {"path": "2_Dense", "type": "sentence_transformers.a.Dense"}])");
  posix_files().create_directory(model_ + "/1_Pooling");
  folder_.put("model/1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_THAT(embed(texts).err, HasSubstr("expected one mode, mean or cls, got pooling_mode_max"));
  folder_.put("model/1_Pooling/config.json", R"({"pooling_mode": "mean"})");
  EXPECT_THAT(embed(texts).err,
              HasSubstr("expected Transformer, Pooling and perhaps Normalize, got Dense"));
  EXPECT_THAT(
      embed(folder_.put("bad.jsonl", "{\"text\": \"w4\"}\n{\"txt\": 1}\n"), "--pooling cls").err,
      HasSubstr("bad.jsonl:2: expected a text, or an object with text, got object"));
  EXPECT_THAT(embed(texts, "--pooling cls --max-tokens 25").err,
              HasSubstr("expected at most the model's 24 tokens, got 25"));
  EXPECT_THAT(run_program(folder_, "generate --model " + model_ + " --prompt w4").err,
              HasSubstr("expected a model that writes text, got bert"));
}

}  // namespace
}  // namespace octet::embed_test
