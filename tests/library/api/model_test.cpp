// octet::Model says what `octet eval`, `octet generate` and `octet convert` say.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "library/api/run_files.h"

namespace octet::api_model_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::ScratchFolder;
using testing::HasSubstr;

// A trained model of two recipes.
class Trained : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Outcome done = test::run_training(folder_, {std::string("recipe=") + GetParam()});
    ASSERT_EQ(done.code, 0) << done.err;
  }
  json program(const std::string& arguments) {
    const Outcome done = test::run_program(folder_, arguments + " --json --quiet --threads 2");
    EXPECT_EQ(done.code, 0) << done.err;
    return json::parse(done.out);
  }
  std::string run() const { return folder_ / "run"; }

  ScratchFolder folder_;
  Machine machine_ = test::two_threads();
};

TEST_P(Trained, has_the_log_likelihood_of_the_program) {
  const std::string text = test::easy_text(700);
  const std::string file = folder_.put("eval.txt", text);
  const json row = program("eval --model " + run() + " --tasks nll:" + file)[0];
  Model model(machine_, run());
  const TextLoss loss = model.nll(std::string_view(text));
  EXPECT_EQ(loss.n_tokens, row["tokens"].get<int64_t>());
  // Scales of coat are those of a batch, and the program's last batch has no filler.
  const double near = GetParam() == std::string("coat") ? 1e-3 : 1e-6;
  EXPECT_NEAR(loss.mean(), row["nll"].get<double>(), near);
  EXPECT_NEAR(loss.perplexity() / row["perplexity"].get<double>(), 1.0, near);
  const TextLoss again = model.nll(model.tokens(text), {.batch = 3});
  EXPECT_EQ(again.n_tokens, loss.n_tokens);
  // Scales of coat are those of a batch.
  EXPECT_NEAR(again.mean(), loss.mean(), GetParam() == std::string("coat") ? 1e-3 : 1e-9);
  const json shorter = program("eval --model " + run() + " --seq 8 --tasks nll:" + file)[0];
  EXPECT_NEAR(model.nll(std::string_view(text), {.seq = 8}).mean(), shorter["nll"].get<double>(),
              near);
}

TEST_P(Trained, generates_what_the_program_does) {
  Model model(machine_, run());
  const json greedy =
      program("generate --model " + run() + " --prompt 'step amax ' --max-tokens 30");
  const GeneratedText mine = model.generate("step amax ", {.max_tokens = 30});
  EXPECT_EQ(mine.prompt + mine.text, greedy["text"].get<std::string>());
  EXPECT_EQ(mine.tokens.size(), 30u);
  EXPECT_EQ(mine.stop, "length");
  const json sampled =
      program("generate --model " + run() +
              " --prompt 'gr' --max-tokens 20 --temperature 0.8 --top-k 5 --top-p 0.9 --seed 3");
  std::string shown;
  const auto texts = model.generate(std::vector<std::string>{"gr", "mo"},
                                    {.max_tokens = 20,
                                     .temperature = 0.8,
                                     .top_k = 5,
                                     .top_p = 0.9,
                                     .seed = 3,
                                     .on_text = [&](size_t index, std::string_view text) {
                                       if (index == 0) shown += text;
                                     }});
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].text, sampled["completion"].get<std::string>());
  EXPECT_EQ(shown, texts[0].text);
}

TEST_P(Trained, is_exported_as_the_program_does) {
  program("convert " + run() + " " + folder_ / "theirs --dtype f32");
  const ExportedModel exported = export_to(run(), folder_ / "mine", {.dtype = "f32"});
  EXPECT_GT(exported.n_tensors, 10);
  EXPECT_EQ(exported.n_shards, 1);
  for (const char* name : {"/config.json", "/model.safetensors"}) {
    EXPECT_EQ(posix_files().read_text(folder_ / "mine" + name),
              posix_files().read_text(folder_ / "theirs" + name))
        << name;
  }
  Model model(machine_, folder_ / "mine", {.tokenizer = "bytes"});
  EXPECT_EQ(model.kind(), "llama");
  EXPECT_EQ(model.vocab(), 256);
  EXPECT_EQ(model.context(), 24);
  EXPECT_GT(model.n_parameters(), 10000);
  if (std::string(GetParam()) == "fp32") {
    EXPECT_EQ(model.generate("step ").text, Model(machine_, run()).generate("step ").text);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, Trained, testing::Values("fp32", "coat"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Model, predicts_with_its_logits) {
  const ScratchFolder folder;
  ASSERT_EQ(test::run_training(folder, {}).code, 0);
  Model model(test::two_threads(), folder / "run");
  const std::vector<int32_t> tokens = model.tokens("amax scale");
  EXPECT_EQ(model.text(tokens), "amax scale");
  const std::vector<float> logits = model.logits(tokens);
  ASSERT_EQ(logits.size(), tokens.size() * 256);
  double sum = 0;
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    double total = 0;
    for (size_t v = 0; v < 256; ++v) total += std::exp(static_cast<double>(logits[t * 256 + v]));
    const auto label = static_cast<size_t>(tokens[t + 1]);
    sum += std::log(total) - static_cast<double>(logits[t * 256 + label]);
  }
  EXPECT_NEAR(model.nll(tokens).sum, sum, 1e-3);
}

TEST(Model, says_what_is_wrong) {
  const ScratchFolder folder;
  const Machine machine = test::two_threads();
  const auto opened = test::error_of([&] { const Model model(machine, folder / "nothing"); });
  EXPECT_EQ(opened.first, ErrorCode::bad_data);
  EXPECT_THAT(opened.second, HasSubstr("nothing"));
  ASSERT_EQ(test::run_training(folder, {"train.steps=1", "optim.warmup=1"}).code, 0);
  Model model(machine, folder / "run");
  const auto expect = [&](const auto& call, const std::string& text) {
    const auto [code, message] = test::error_of(call);
    EXPECT_EQ(code, ErrorCode::invalid_argument) << message;
    EXPECT_THAT(message, HasSubstr(text));
  };
  expect([&] { model.logits(std::vector<int32_t>(25, 1)); }, "at most 24 tokens, got 25");
  expect([&] { model.logits(std::vector<int32_t>{256}); }, "tokens in [0, 256), got 256");
  expect([&] { model.nll(std::string_view("a")); }, "two tokens or more, got 1");
  expect([&] { model.nll(std::string_view("abc"), {.batch = 0}); }, "a batch of 1 or more");
  expect([&] { model.generate(""); }, "expected some text, got none");
  expect([&] { model.generate("a", {.temperature = -1}); }, "temperature: expected a number of 0");
  expect([&] { model.generate("a", {.top_p = 0}); }, "top_p: expected above 0 and at most 1");
  expect([&] { model.generate("a", {.repetition_penalty = 0}); }, "repetition_penalty");
  expect([&] { export_to(folder / "run", folder / "out", {.dtype = "int4"}); }, "got int4");
  expect([&] { export_to(folder / "run", folder / "run"); }, folder / "run");
}

TEST(Model, translates_what_the_program_does) {
  const ScratchFolder folder;
  std::string pairs = "source\ttarget\n";
  for (const char* line : {"red cat\tchat rouge", "old cat\tvieux chat", "red\trouge"})
    pairs += std::string(line) + "\n";
  const std::string run = folder / "run";
  folder.put("run.yaml",
             "model: {kind: t5, hidden: 16, layers: 1, heads: 2, ffn: 32, vocab: 570, seq: 12, "
             "source_seq: 16}\nrecipe: fp32\ndata: {tokenizer: " OCTET_SOURCE_DIR
             "/tests/fixtures/tokenizers/sp_unigram.model, source_prefix: \"say: \", train: [" +
                 folder.put("pairs.tsv", pairs) + "]}\ntrain: {steps: 8, batch: 3}\nout: " + run);
  ASSERT_EQ(test::run_program(folder, "train " + (folder / "run.yaml") + " --quiet").code, 0);
  const std::vector<std::string> sources = {"old red cat", "red", "cat old"};
  const std::string file = folder.put("sources.txt", "old red cat\nred\ncat old\n");
  Model model(test::two_threads(), run);
  EXPECT_EQ(model.kind(), "t5");
  const auto expect = [&](const std::string& flags, const TranslationSettings& settings) {
    const Outcome done = test::run_program(
        folder, "generate --model " + run + " --sources " + file + " --json --quiet " + flags);
    ASSERT_EQ(done.code, 0) << done.err;
    const json rows = json::parse(done.out);
    const std::vector<TranslatedText> texts = model.translate(sources, settings);
    ASSERT_EQ(texts.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string said =  // half a character is none in JSON
          json(texts[i].text).dump(-1, ' ', false, json::error_handler_t::replace);
      EXPECT_EQ(json::parse(said), rows[i]["text"]) << flags;
      EXPECT_EQ(texts[i].tokens, rows[i]["ids"].get<std::vector<int32_t>>()) << flags;
      EXPECT_EQ(texts[i].stop, rows[i]["stop"]) << flags;
      if (settings.beams > 1) {
        EXPECT_EQ(texts[i].score, rows[i]["score"].get<float>()) << flags;
      }
    }
  };
  expect("--max-tokens 8", {.max_tokens = 8});
  expect("--max-tokens 8 --beams 3 --batch 2", {.max_tokens = 8, .beams = 3, .batch = 2});
  expect("--max-tokens 6 --beams 4 --length-penalty 2 --early-stopping yes --source-prefix ''",
         {.max_tokens = 6,
          .beams = 4,
          .length_penalty = 2,
          .early_stopping = "yes",
          .source_prefix = ""});
  expect("--max-tokens 8 --temperature 1 --top-k 5 --seed 3",
         {.max_tokens = 8, .temperature = 1, .top_k = 5, .seed = 3});
  EXPECT_TRUE(model.translate(std::vector<std::string>{}).empty());

  const auto refused = [&](const auto& call, const std::string& text) {
    const auto [code, message] = test::error_of(call);
    EXPECT_EQ(code, ErrorCode::invalid_argument) << message;
    EXPECT_THAT(message, HasSubstr(text));
  };
  refused([&] { model.translate("red", {.beams = 2, .temperature = 1}); }, "beams: expected 1");
  refused([&] { model.translate("red", {.beams = 65}); }, "at most 64 beams");
  refused([&] { model.translate("red", {.early_stopping = "maybe"}); }, "got 'maybe'");
  refused([&] { model.generate("red"); }, "Model.translate");
  refused([&] { model.logits(std::vector<int32_t>{3}); }, "Model.translate");
  refused([&] { model.nll(std::string_view("red cat")); }, "Model.translate");
  const ScratchFolder other;
  ASSERT_EQ(test::run_training(other, {"train.steps=1", "optim.warmup=1"}).code, 0);
  Model decoder(test::two_threads(), other / "run");
  refused([&] { decoder.translate("red"); }, "expected a model that translates, got llama");
}

TEST(Example, trains_writes_exports_and_goes_on) {
  const ScratchFolder folder;
  const std::string text = folder.put("text.txt", test::easy_text(4000));
  const auto run = [&](const std::string& steps) {
    const std::string line = std::string(OCTET_EXAMPLE) + " " + text + " " + folder / "run" +
                             " train.steps=" + steps +
                             " train.batch=2 optim.warmup=2 optim.schedule=constant >" +
                             folder / "out.txt 2>" + folder / "err.txt";
    return std::system(line.c_str());
  };
  ASSERT_EQ(run("4"), 0) << posix_files().read_text(folder / "err.txt");
  const std::string said = posix_files().read_text(folder / "out.txt");
  EXPECT_THAT(said, HasSubstr("step 1 of 4  loss 5."));
  EXPECT_THAT(said, HasSubstr("  validation "));
  EXPECT_THAT(said, HasSubstr("\nThe "));
  EXPECT_THAT(said, HasSubstr("21 tensors in " + folder / "run/huggingface-4"));
  EXPECT_TRUE(posix_files().exists(folder / "run/huggingface-4/model.safetensors"));
  ASSERT_EQ(run("5"), 0) << posix_files().read_text(folder / "err.txt");
  const std::string more = posix_files().read_text(folder / "out.txt");
  EXPECT_TRUE(more.starts_with("step 5 of 5"));
  EXPECT_THAT(more, HasSubstr("run/huggingface-5"));
}

}  // namespace
}  // namespace octet::api_model_test
