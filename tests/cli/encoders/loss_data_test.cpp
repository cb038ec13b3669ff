// Every loss is trained on every kind of data that docs/formats names for it: two steps, each with
// labels and a finite loss, and an evaluation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "cli/encoders/encoder_run.h"
#include "cli/train/trainer_run.h"
#include "train/open_run.h"
#include "train/run_inputs.h"
#include "unit/infer/put_arrays.h"

namespace octet::encoders_loss_data_test {
namespace {

using test::ScratchFolder;

constexpr int64_t kSamples = 12;

const std::string kBert =
    "kind: bert, hidden: 16, layers: 1, heads: 2, ffn: 16, vocab: 421, seq: 16";
const std::string kVit =
    "kind: vit, hidden: 16, layers: 1, heads: 2, ffn: 16, image_size: 8, patch_size: 4";
const std::string kLlama =
    "kind: llama, hidden: 16, layers: 1, heads: 2, ffn: 16, vocab: 256, seq: 16";

// A model that has the loss, and the keys beside it.
struct Trained {
  std::string model, train;
};
const std::map<std::string, Trained>& models() {
  static const std::map<std::string, Trained> all = {
      {"next_token", {kLlama, ""}},
      {"masked_token", {kBert + ", head: masked", ""}},
      {"classes", {kBert + ", head: classes, classes: 3", ""}},
      {"span", {kBert + ", head: span", ""}},
      {"regression", {kBert + ", head: value", ""}},
      {"contrastive", {kBert + ", head: embeddings", ""}},
      {"multi_label", {kBert + ", head: multi_label, classes: 4", ""}},
      {"pairwise", {kLlama, ", loss: pairwise"}},
      {"dpo", {kLlama, ", loss: dpo"}},
      {"ipo", {kLlama, ", loss: ipo"}},
      {"simpo", {kLlama, ", loss: simpo"}},
      {"orpo", {kLlama, ", loss: orpo"}}};
  return all;
}

LoadedConfig config_of(const Trained& model, const std::string& data, int64_t batch = 4) {
  const std::string tokenizer = model.model.starts_with("kind: bert")
                                    ? std::string("tokenizer: ") + OCTET_SOURCE_DIR +
                                          "/tests/fixtures/word_pieces/uncased.json, "
                                    : "";
  static const ScratchFolder runs;  // tokens of text are kept beside a run
  return parse_config("model: {" + model.model + "}\nrecipe: fp32\noptim: {warmup: 0}\ndata: {" +
                          tokenizer + data + "}\ntrain: {steps: 2, batch: " +
                          fmt::to_string(batch) + model.train + "}\nout: " + (runs / "run") + "\n",
                      "test.yaml");
}

void expect_two_steps(LoadedConfig loaded) {
  const OpenRun run = open_run(posix_files(), std::move(loaded));
  cpu::Backend backend = cpu::make_backend(1, cpu::detect_isa());
  Trainer trainer(run.loaded.config, run.data,
                  {posix_files(), *backend.device, *backend.catalogue});
  for (int step = 0; step < 2; ++step) {
    const StepReport report = trainer.step();
    EXPECT_TRUE(std::isfinite(report.loss)) << report.loss;
    EXPECT_GT(report.labels, 0);
    EXPECT_GT(report.grad_norm, 0);
  }
  const auto loss = trainer.evaluate();
  ASSERT_TRUE(loss.has_value());
  EXPECT_TRUE(std::isfinite(*loss)) << *loss;
}

struct Arrays {
  SafeDtype numbers = SafeDtype::f32;
  bool has_lengths = false;
};

// Numbers of any kind; every third target is none.
test::ArrayToPut numbers_of(const InputSpec& input, const std::vector<int64_t>& shape, size_t n,
                            SafeDtype stored) {
  const bool is_f16 = stored == SafeDtype::f16;
  const uint16_t none = is_f16 ? 0x7E00 : 0x7FC0, one = is_f16 ? 0x3C00 : 0x3F80;
  std::vector<float> wide;
  std::vector<uint16_t> narrow;
  for (size_t i = 0; i < n; ++i) {
    const bool is_none = input.fill == Fill::ignored && i % 3 == 1;
    wide.push_back(is_none ? NAN : std::cos(static_cast<float>(i)));
    narrow.push_back(is_none ? none : i % 2 == 0 ? one : uint16_t{0});
  }
  if (stored == SafeDtype::f32) return test::array_of(input.name, stored, shape, wide);
  return test::array_of(input.name, stored, shape, narrow);
}

// Arrays that a run of this model reads; values differ between samples.
std::string put_run_arrays(const std::string& path, const Trained& model, const Arrays& how) {
  const RunConfig config = config_of(model, "train: [a.safetensors]").config;
  const RunInputs inputs(config, model_from_config(posix_files(), config));
  const int64_t rows = kSamples * inputs.rows_per_sample;
  std::vector<test::ArrayToPut> arrays;
  for (const InputSpec& input : inputs.brought()) {
    std::vector<int64_t> shape = {input.per == Per::sample ? kSamples : rows};
    if (input.per == Per::token) shape.push_back(config.model.seq);
    shape.insert(shape.end(), input.inner.begin(), input.inner.end());
    const auto n = static_cast<size_t>(n_elems(shape));
    if (input.type == HostType::real) {
      arrays.push_back(numbers_of(input, shape, n, how.numbers));
      continue;
    }
    std::vector<int32_t> values;
    const int64_t labels = config.model.classes > 0 ? config.model.classes : 8;
    const auto bound =
        static_cast<size_t>(input.bound > 0 ? std::min<int64_t>(input.bound, 97) : labels);
    for (size_t i = 0; i < n; ++i) {
      const bool is_none = input.fill == Fill::ignored && i % 3 == 1;
      values.push_back(is_none ? kIgnoredLabel : static_cast<int32_t>(i * 7 % bound));
    }
    arrays.push_back(test::array_of(input.name, SafeDtype::i32, shape, values));
  }
  if (how.has_lengths) {
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < rows; ++i)
      lengths.push_back(static_cast<int32_t>(config.model.seq - i % 4));
    arrays.push_back(test::array_of("lengths", SafeDtype::i32, {rows}, lengths));
  }
  return test::put_arrays(path, arrays);
}

TEST(LossData, every_loss_is_trained_on_arrays) {
  const ScratchFolder folder;
  for (const LossDef* loss : losses()) {
    ASSERT_TRUE(models().contains(std::string(loss->name))) << loss->name;
    const Trained& model = models().at(std::string(loss->name));
    for (const SafeDtype numbers : {SafeDtype::f32, SafeDtype::f16, SafeDtype::bf16}) {
      for (const bool has_lengths : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", loss->name, safe_dtype_name(numbers), has_lengths));
        const Arrays how{numbers, has_lengths};
        const std::string train = put_run_arrays(folder / "a.safetensors", model, how);
        const std::string val = put_run_arrays(folder / "v.safetensors", model, how);
        expect_two_steps(config_of(model, "train: [" + train + "], val: [" + val + "]"));
        expect_two_steps(config_of(model, "train: [" + train + "], val_fraction: 0.4"));
      }
    }
  }
}

TEST(LossData, pictures_are_trained_as_arrays) {
  const ScratchFolder folder;
  const Trained vit = {kVit + ", classes: 3", ""};
  const std::string train = put_run_arrays(folder / "a.safetensors", vit, {});
  expect_two_steps(config_of(vit, "train: [" + train + "], val_fraction: 0.4"));
}

std::string records(const std::string& fields) {
  const char* words[] = {"scale", "group", "model", "kernel", "token", "train", "run", "step"};
  std::string lines;
  for (int i = 0; i < kSamples; ++i) {
    std::string line = "{" + fields + "}\n";
    for (size_t at = line.find('@'); at != line.npos; at = line.find('@'))
      line.replace(at, 1, fmt::format("the {} {}", words[i % 8], words[(i * 3 + at) % 8]));
    for (size_t at = line.find('#'); at != line.npos; at = line.find('#'))
      line.replace(at, 1, fmt::to_string(i % 3));
    lines += line;
  }
  return lines;
}

std::string questions() {
  std::string all;
  for (int i = 0; i < kSamples; ++i) {
    all += fmt::format(R"({}{{"context": "the model runs the scale", "qas": [{{"id": "{}", )"
                       R"("question": "what runs", )"
                       R"("answers": [{{"text": "{}", "answer_start": {}}}]}}]}})",
                       i == 0 ? "" : ", ", i, i % 2 == 0 ? "model" : "scale", i % 2 == 0 ? 4 : 19);
  }
  return R"({"data": [{"paragraphs": [)" + all + "]}]}";
}

// A file in IDX's form, of bytes.
std::string idx(const std::vector<uint8_t>& shape, const std::string& values) {
  std::string file = {'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const uint8_t extent : shape) file += {'\0', '\0', '\0', static_cast<char>(extent)};
  return file + values;
}

TEST(LossData, classes_are_trained_on_pictures) {
  const ScratchFolder folder;
  std::string pixels, labels;
  for (int64_t i = 0; i < kSamples; ++i) {
    labels += static_cast<char>(i % 3);
    for (int64_t at = 0; at < 64; ++at) pixels += static_cast<char>(i * 37 + at);
  }
  folder.put("train-labels-idx1-ubyte", idx({kSamples}, labels));
  const std::string path = folder.put("train-images-idx3-ubyte", idx({kSamples, 8, 8}, pixels));
  expect_two_steps(config_of({kVit + ", channels: 1, classes: 3", ""},
                             "train: [" + path + "], val_fraction: 0.4"));
}

// Tokens of 16 bits each.
std::string shard(const std::string& text) {
  std::string bytes;
  for (const char letter : text) bytes += {letter, '\0'};
  return bytes;
}

TEST(LossData, every_loss_is_trained_on_the_files_that_it_has) {
  struct Case {
    const char* loss;
    std::string file, content, keys;
    int64_t batch = 4;
  };
  const std::string single = R"("text": "@", "label": )",
                    pair = R"("sentence1": "@", "sentence2": "@", "label": )";
  const std::string text = test::easy_text(2000);
  const Case cases[] = {
      {"next_token", "t.txt", text, ""},
      {"next_token", "t.bin", shard(text), ""},
      {"next_token", "t.jsonl", records(R"("prompt": "@", "completion": "@")"),
       ", chat: {template: chatml}"},
      {"masked_token", "t.txt", text, ""},
      {"classes", "t.jsonl", records(single + "#"), ""},
      {"classes", "t.jsonl", records(pair + "\"name #\""), ""},
      {"classes", "t.tsv",
       "text\tlabel\nthe scale\t0\nthe group\t1\na run\t2\nthe step\t0\n"
       "the model\t1\na token\t2\n",
       ""},
      {"multi_label", "t.jsonl", records(single + "[\"a\", \"name #\"]"), ""},
      {"multi_label", "t.jsonl", records(pair + "[0, 1, 0.5, 0]"), ""},
      {"regression", "t.jsonl", records(single + "0.#"), ""},
      {"regression", "t.jsonl", records(pair + "\"#.5\""), ""},
      {"contrastive", "t.jsonl", records(R"("anchor": "@", "positive": "@")"), ""},
      {"contrastive", "t.jsonl", records(R"("anchor": "@", "positive": "@", "negative": "@")"), "",
       6},
      {"contrastive", "t.jsonl", records(R"("a": "@", "b": "@", "x": "@", "y": "@")"),
       ", fields: {text: a, pair: b, negatives: [x, y]}", 8},
      {"contrastive", "t.jsonl",
       records(R"("question1": "@", "question2": "@", "is_duplicate": #)"),
       ", fields: {partners: [1, 2]}"},
      {"span", "t.json", questions(), ""}};
  const ScratchFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.loss + (" " + c.file) + c.keys);
    const std::string path = folder.put(c.file, c.content);
    Trained model = models().at(c.loss);
    if (c.keys.find("chat") != c.keys.npos)  // a conversation takes more tokens
      model.model.replace(model.model.find("seq: 16"), 7, "seq: 128");
    expect_two_steps(
        config_of(model, "train: [" + path + "], val_fraction: 0.4" + c.keys, c.batch));
  }
}

}  // namespace
}  // namespace octet::encoders_loss_data_test
