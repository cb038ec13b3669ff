// Models that translate, from pairs of texts to BLEU: training under every recipe, runs that go on,
// adapters, export, decoding, evaluation, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/program_run.h"
#include "cli/train/trainer_run.h"
#include "data/span_rows.h"
#include "train/open_run.h"

namespace octet::translation_test {
namespace {

using nlohmann::json;
using test::ScratchFolder;
using testing::HasSubstr;

const std::string kTokenizer = OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/sp_unigram.model";

// A word of each side, in another order.
std::string table() {
  constexpr const char* kFrom[] = {"red", "blue", "green", "old", "new", "small"};
  constexpr const char* kTo[] = {"rouge", "bleu", "vert", "vieux", "neuf", "petit"};
  std::string text = "note\tde\ten\n";
  for (int i = 0; i < 24; ++i) {
    const int a = i % 6, b = (i * 5 + 1) % 6;
    text += fmt::format("{}\t{} {}\t{} {}\n", i, kTo[b], kTo[a], kFrom[a], kFrom[b]);
  }
  return text;
}

std::string config_text(const std::string& model, const std::string& data,
                        const std::string& more) {
  return "model: {" + model +
         ", hidden: 16, heads: 2, vocab: 570, seq: 12, source_seq: 16}\noptim: {warmup: 0, lr: "
         "1.0e-2}\ndata: {tokenizer: " +
         kTokenizer + ", " + data + "}\n" + more + "\n";
}

struct Family {
  std::string name, model;
};
const Family kFamilies[] = {
    {"t5",
     "kind: t5, feed_forward: gated_gelu, head_dim: 16, tied: true, scale_head: true, layers: 1, "
     "decoder_layers: 2, ffn: 32"},
    {"marian",
     "kind: marian, tied: true, scale_embedding: true, layers: 1, decoder_layers: 2, ffn: 32"},
    {"lstm_seq2seq", "kind: lstm_seq2seq, tied: true, layers: 2"}};

class Recipe : public testing::TestWithParam<std::string> {};

TEST_P(Recipe, trains_every_family) {
  const ScratchFolder folder;
  const std::string pairs = folder.put("pairs.tsv", table());
  const bool propagates = GetParam().starts_with("scalify");  // which recurrences are refused
  for (const Family& family : kFamilies) {
    if (propagates && family.name == "lstm_seq2seq") continue;
    const std::string text = config_text(
        family.model, "train: [" + pairs + "], fields: {text: en, pair: de}",
        "recipe: " + GetParam() + "\ntrain: {steps: 2, batch: 4, label_smoothing: 0.1}\n" +
            "out: " + (folder / "run"));
    const OpenRun run = open_run(posix_files(), parse_config(text, "test.yaml"));
    cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa());
    Trainer trainer(run.loaded.config, run.data,
                    {posix_files(), *backend.device, *backend.catalogue});
    for (int step = 0; step < 2; ++step) {
      const StepReport report = trainer.step();
      EXPECT_TRUE(std::isfinite(report.loss)) << family.name << " " << report.loss;
      EXPECT_LT(report.loss, 9) << family.name;
      EXPECT_GT(report.labels, 4) << family.name;
      EXPECT_GT(report.grad_norm, 0) << family.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Recipe,
                         testing::Values("fp32", "bf16",
                                         "{base: fp16, loss_scaling: adaptive, loss_scale: 1024}",
                                         "fp8_linear", "fp8_block", "coat", "hif8", "scalify_fp16",
                                         "scalify_fp8"));

// The program in a folder with pairs and a configuration.
class Translation : public testing::Test {
 protected:
  void SetUp() override {
    pairs_ = folder_.put("pairs.tsv", table());
    write_run(kFamilies[0]);
  }
  void write_run(const Family& family) {
    folder_.put(
        "run.yaml",
        config_text(family.model,
                    "train: [" + pairs_ + "], val: [" + pairs_ +
                        "], fields: {text: en, pair: de}, source_prefix: \"say: \"",
                    "recipe: fp32\ntrain: {steps: 40, batch: 8, eval_every: 20, save_every: "
                    "20, keep: 3}\nout: " +
                        run_));
  }
  json metrics(const std::string& run, const std::string& key) const {
    json values = json::array();
    std::istringstream lines(posix_files().read_text(run + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const json row = json::parse(line);
      if (row.contains(key)) values.push_back(row[key]);
    }
    return values;
  }
  // Output of the program; it must end well.
  std::string said(const std::string& arguments) {
    const test::Outcome done = test::run_program(folder_, arguments);
    EXPECT_EQ(done.code, 0) << arguments << "\n" << done.err;
    return done.out;
  }
  std::string refused(const std::string& arguments) {
    const test::Outcome done = test::run_program(folder_, arguments);
    EXPECT_NE(done.code, 0) << arguments << "\n" << done.out;
    return done.err;
  }

  void expect_pairs_to_bleu() {
    const std::string train = "train " + (folder_ / "run.yaml") + " --quiet";
    said(train);
    const json losses = metrics(run_, "loss"), told = metrics(run_, "val_loss");
    EXPECT_LT(losses.back().get<double>(), losses.front().get<double>() - 1);
    // What a run evaluates is what eval says of the same pairs.
    const json rows = json::parse(said("eval --model " + run_ + " --json"));
    EXPECT_NEAR(rows.at(0).at("nll").get<double>(), told.back().get<double>(), 1e-5);
    // Half of it and the rest are the whole, bit by bit.
    const std::string half = folder_ / "half";
    std::filesystem::copy(run_, half, std::filesystem::copy_options::recursive);
    std::filesystem::remove_all(half + "/ckpt/step-000040");
    said(train + " --resume --set out=" + half);
    EXPECT_EQ(posix_files().read_text(half + "/ckpt/step-000040/model.safetensors"),
              posix_files().read_text(run_ + "/ckpt/step-000040/model.safetensors"));
    // The folder that is exported writes what the run does, prefix and all.
    const std::string sources = folder_.put("sources.txt", "red blue\nold\nnew red\n"),
                      out = folder_ / "exported";
    said("convert " + run_ + " " + out + " --dtype f32 --quiet");
    for (const char* beams : {"", "--beams 3 --length-penalty 0.7 --batch 2"}) {
      const auto written = [&](const std::string& model) {
        return said(
            fmt::format("generate --model {} --sources {} --max-tokens 8 --recipe fp32 --quiet {}",
                        model, sources, beams));
      };
      const std::string text = written(run_);
      EXPECT_EQ(std::ranges::count(text, '\n'), 3);
      EXPECT_EQ(text, written(out + " --source-prefix \"say: \""));
    }
    const json scored =
        json::parse(said("eval --model " + run_ + " --tasks bleu:" + pairs_ + ",chrf:" + pairs_ +
                         " --max-new-tokens 12 --recipe fp32 --json --quiet"));
    ASSERT_EQ(scored.size(), 2U);
    EXPECT_EQ(scored[0].at("n"), 24);
    EXPECT_GE(scored[0].at("bleu").get<double>(), 0);
    EXPECT_GT(scored[1].at("chrf").get<double>(), 0);
    // Adapters, and frozen weights, of that folder.
    folder_.put("next.yaml", "model: {path: " + out +
                                 ", seq: 12, source_seq: 16}\ndata: {train: [" + pairs_ +
                                 "], fields: {text: en, pair: de}, tokenizer: " + kTokenizer +
                                 "}\ntrain: {steps: 2, batch: 4}\nout: " + (folder_ / "next"));
    const std::string from = "train " + (folder_ / "next.yaml") + " --quiet";
    said(from + " --set recipe=bf16 --set lora.rank=2");
    std::filesystem::remove_all(folder_ / "next");
    said(from + " --set recipe=fp32 --set 'train.freeze=[\"encoder.*\"]'");
  }

  ScratchFolder folder_;
  std::string pairs_, run_ = folder_ / "run";
};

TEST_F(Translation, from_pairs_to_bleu) {
  expect_pairs_to_bleu();
}

TEST_F(Translation, from_pairs_to_bleu_by_an_lstm) {
  write_run(kFamilies[2]);
  expect_pairs_to_bleu();
  const std::string train =
      "train " + (folder_ / "run.yaml") + " --quiet --set out=" + (folder_ / "x") + " --set ";
  for (const char* key : {"model.source_seq=80", "model.seq=65"})
    EXPECT_THAT(refused(train + key), HasSubstr("expected at most 64 tokens of a source"));
  EXPECT_THAT(refused(train + "model.layers=1"), HasSubstr("model.layers: expected 2 or more"));
  EXPECT_THAT(refused(train + "model.decoder_layers=3"),
              HasSubstr("model.decoder_layers: expected model.layers = 2"));
  EXPECT_THAT(refused(train + "recipe=scalify_fp8"),
              HasSubstr("recipe.base: expected a recipe that measures scales for lstm_seq2seq, "
                        "whose linear hh is run at every step of a text, got scalify_fp8"));
  EXPECT_THAT(refused("serve --model " + run_), HasSubstr("lstm_seq2seq, which translates"));
}

TEST_F(Translation, pairs_may_be_lines_of_two_files_and_json) {
  std::string sources, targets, records;
  std::istringstream lines(table());
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    const std::string target = line.substr(first + 1, second - first - 1),
                      source = line.substr(second + 1);
    sources += source + "\n", targets += target + "\n";
    records += json({{"source", source}, {"target", target}}).dump() + "\n";
  }
  const std::string from = folder_.put("a.txt", sources), to = folder_.put("b.txt", targets),
                    both = folder_.put("c.jsonl", records);
  const std::string train = "train " + (folder_ / "run.yaml") +
                            " --quiet --set train.steps=2 --set 'data.val=[]' --set out=";
  said(train + (folder_ / "columns"));
  said(train + (folder_ / "lines") + " --set 'data.train=[" + from + "]' --set 'data.targets=[" +
       to + "]'");
  said(train + (folder_ / "json") + " --set 'data.train=[" + both +
       "]' --set data.fields.text=auto --set data.fields.pair=auto");
  const json losses = metrics(folder_ / "columns", "loss");
  EXPECT_EQ(losses, metrics(folder_ / "lines", "loss"));
  EXPECT_EQ(losses, metrics(folder_ / "json", "loss"));

  const std::string short_file = folder_.put("short.txt", "eins\n");
  EXPECT_THAT(refused(train + (folder_ / "x") + " --set 'data.train=[" + from +
                      "]' --set 'data.targets=[" + short_file + "]'"),
              HasSubstr("short.txt: expected as many lines as the 24 of " + from + ", got 1"));
  EXPECT_THAT(refused(train + (folder_ / "x") + " --set data.tokenizer=bytes"),
              HasSubstr("data.tokenizer: expected one with an end of text"));
  EXPECT_THAT(refused(train + (folder_ / "x") + " --set data.fields.pair=fr"),
              HasSubstr("expected a second text 'fr', got note, de, en"));
  EXPECT_THAT(refused(train + (folder_ / "x") + " --set data.document_boundaries=isolate"),
              HasSubstr("isolate"));
}

TEST_F(Translation, pairs_of_similar_lengths_make_batches_of_about_equal_tokens) {
  std::string lines = "en\tde\n";
  for (int i = 0; i < 90; ++i) {
    std::string source = "red", target = "rouge";
    for (int word = 0; word < i * i % 13; ++word) source += " old", target += " vieux";
    lines += source + "\t" + target + "\n";
  }
  const std::string file = folder_.put("long.tsv", lines);
  const std::string keys = " --set 'data.train=[" + file +
                           "]' --set data.buckets=3 --set model.seq=64 --set model.source_seq=64 "
                           "--set train.batch=2 --set train.steps=8 --set train.save_every=4 ";
  const std::string train = "train " + (folder_ / "run.yaml") + keys + "--set out=";
  const std::string two = "--set train.accumulate=2",
                    told = test::run_program(folder_, train + run_ + " " + two).err;
  EXPECT_THAT(told, HasSubstr("pairs of texts in 90 rows in "));
  const json losses = metrics(run_, "loss"), labels = metrics(run_, "labels");
  ASSERT_EQ(losses.size(), 8U);
  EXPECT_LT(losses.back().get<double>(), losses.front().get<double>());
  // Half of it and the rest are the whole, bit by bit.
  const std::string half = folder_ / "half", last = "/ckpt/step-000008/model.safetensors";
  std::filesystem::copy(run_, half, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(half + "/ckpt/step-000008");
  said(train + half + " --quiet --resume " + two);
  EXPECT_EQ(posix_files().read_text(half + last), posix_files().read_text(run_ + last));
  // Two ranks have the two batches of a step.
  said(train + (folder_ / "ranks") + " --quiet --set parallel.ranks=2");
  EXPECT_EQ(metrics(folder_ / "ranks", "labels"), labels);
  const json of_ranks = metrics(folder_ / "ranks", "loss");
  for (size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(of_ranks.at(i).get<double>(), losses[i].get<double>(), 1e-4) << i;
  EXPECT_THAT(said("data inspect " + (folder_ / "run.yaml") + keys), HasSubstr("buckets        "));
  EXPECT_THAT(refused(train + (folder_ / "x") + " --set data.spans.share=0.15"),
              HasSubstr("data.buckets: expected 1 but for conversations"));
}

TEST_F(Translation, sides_that_are_empty_or_too_long_are_told) {
  const std::string odd =
      folder_.put("odd.tsv", "en\tde\n\tleer\nred\trouge\n" +
                                 std::string("old new old new old new old new old new\tvieux\n"));
  const std::string train = "train " + (folder_ / "run.yaml") +
                            " --set train.steps=1 --set 'data.val=[]' --set 'data.train=[" + odd +
                            "]' --set out=";
  const auto told = [&](const std::string& arguments) {
    return test::run_program(folder_, arguments).err;
  };
  const std::string cut = told(train + (folder_ / "cut"));
  EXPECT_THAT(cut, HasSubstr("odd.tsv:2 is left out: expected a source and a target"));
  EXPECT_THAT(cut, HasSubstr("1 of 2 sources lost their ends (model.source_seq, data.too_long)"));
  EXPECT_THAT(told(train + (folder_ / "drop") + " --set data.too_long=drop"),
              HasSubstr("odd.tsv:4 is left out: expected at most 16 tokens (model.source_seq)"));
}

// Tables of sines that end are those of transformers; distances have no end.
TEST_F(Translation, a_source_as_long_as_the_folder_knows_is_the_longest) {
  for (const Family& family : {kFamilies[0], kFamilies[1]}) {
    write_run(family);
    said("train " + (folder_ / "run.yaml") + " --quiet --set train.steps=1");
    const std::string model = folder_ / family.name;
    said("convert " + run_ + " " + model);
    folder_.put("longer.yaml", "model: {path: " + model +
                                   ", seq: 12, source_seq: 40}\nrecipe: fp32\ndata: {train: [" +
                                   pairs_ +
                                   "], fields: {text: en, pair: de}}\ntrain: {steps: 1, "
                                   "batch: 2}\nout: " +
                                   (folder_ / "longer"));
    const std::string train = "train " + (folder_ / "longer.yaml") + " --quiet";
    if (family.name == "t5") {
      said(train);
    } else {
      EXPECT_THAT(refused(train), HasSubstr("model.source_seq: expected at most the 16 positions"));
    }
    std::filesystem::remove_all(run_);
    std::filesystem::remove_all(folder_ / "longer");
  }
}

TEST_F(Translation, text_becomes_sources_with_spans_left_out) {
  std::string text;
  for (int i = 0; i < 80; ++i) text += fmt::format("the cat {} sat on mat {}. ", i, i * 7);
  const std::string file = folder_.put("text.txt", text);
  said("train " + (folder_ / "run.yaml") +
       " --quiet --set train.steps=2 --set 'data.val=[]' --set 'data.train=[" + file +
       "]' --set data.spans.share=0.25 --set data.fields.text=auto --set data.fields.pair=auto");
  const json losses = metrics(run_, "loss");
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_LT(losses[0].get<double>(), 9);
}

TEST_F(Translation, is_asked_of_models_that_do_it) {
  said("train " + (folder_ / "run.yaml") + " --quiet --set train.steps=1");
  EXPECT_THAT(refused("generate --model " + run_ + " --prompt x"), HasSubstr("--sources"));
  const std::string sources = folder_.put("s.txt", "red\n"), empty = folder_.put("empty.txt", "");
  const std::string about = "generate --model " + run_ + " --sources ";
  EXPECT_THAT(refused(about + empty), HasSubstr("expected a line at least"));
  EXPECT_THAT(refused(about + sources + " --beams 2 --temperature 1"), HasSubstr("--beams"));
  EXPECT_THAT(refused(about + sources + " --chat"), HasSubstr("--chat"));
  EXPECT_THAT(refused("eval --model " + run_ + " --tasks bleu"), HasSubstr("bleu:FILE"));
  folder_.put("decoder.yaml",
              "model: {kind: llama, hidden: 16, layers: 1, heads: 2, ffn: 16, vocab: 256, seq: "
              "16}\nrecipe: fp32\ndata: {train: [" +
                  pairs_ + "]}\ntrain: {steps: 1, batch: 2}\nout: " + (folder_ / "decoder"));
  said("train " + (folder_ / "decoder.yaml") + " --quiet");
  EXPECT_THAT(refused("generate --model " + (folder_ / "decoder") + " --sources " + sources),
              HasSubstr("expected a model that translates"));
}

TEST(LeftOutSpans, and_what_is_kept_are_the_text) {
  SpanRule rule{.share = 0.15, .length = 3, .sentinels = {99, 98, 97, 96, 95, 94, 93}, .end = {1}};
  std::vector<int32_t> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 50 + 2);
  CorruptedText first;
  for (int64_t row = 0; row < 20; ++row) {
    const CorruptedText text = leave_out_spans(tokens, rule, 7, row);
    if (row == 0) first = text;
    EXPECT_EQ(text.source.size(), 100U - 15 + 5 + 1);
    EXPECT_EQ(text.target.size(), 15U + 5 + 1);
    EXPECT_EQ(text.target.front(), 99);
    EXPECT_EQ(row > 0 && text.target == first.target, false) << row;
    // Each sentinel of the source gives way to what stands behind it in the target.
    std::vector<int32_t> whole;
    for (size_t i = 0; i + 1 < text.source.size(); ++i) {
      if (text.source[i] < 93) {
        whole.push_back(text.source[i]);
        continue;
      }
      auto at = std::ranges::find(text.target, text.source[i]) + 1;
      EXPECT_LT(*at, 93);
      for (; *at < 93 && *at != 1; ++at) whole.push_back(*at);
    }
    EXPECT_EQ(whole, tokens) << row;
  }
  EXPECT_EQ(leave_out_spans(tokens, rule, 7, 0).source, first.source);
  rule.sentinels.resize(2);
  EXPECT_THROW(leave_out_spans(tokens, rule, 7, 0), Error);
}

}  // namespace
}  // namespace octet::translation_test
