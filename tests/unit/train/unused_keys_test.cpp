#include "train/unused_keys.h"
#include "train/run_length.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/model_spec.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_unused_keys_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> unused(const std::vector<std::string>& sets) {
  const LoadedConfig loaded = parse_config("", "a.yaml", sets);
  std::vector<std::string> paths;
  for (const UnusedKey& key : unused_keys(loaded, model_from_config(posix_files(), loaded.config)))
    paths.emplace_back(key.path);
  return paths;
}

// One key, which lacks what the second settings bring.
struct UnusedCase {
  std::string key;
  std::vector<std::string> with;
};

TEST(UnusedKeys, are_those_that_lack_what_they_are_for) {
  const test::ScratchFolder folder;
  const std::vector<std::string> texts = {"model.kind=bert", "model.head=classes"};
  const std::vector<std::string> pairs = {"model.kind=bert", "model.head=embeddings"};
  const UnusedCase cases[] = {
      {"recipe.scaling=delayed", {"recipe.base=fp8_linear"}},
      {"recipe.weight_copy=per_use", {"recipe.base=fp8_linear"}},
      {"recipe.gradient_rounding=hr", {"recipe.base=hif8"}},
      {"recipe.gradient_rounding=sr", {"recipe.base=fp8_linear"}},
      {"recipe.block_scale=power", {"recipe.base=fp8_block"}},
      {"recipe.mx_scale=floor", {"recipe.base=mxfp8"}},
      {"recipe.forward_reads=stored", {"recipe.base=coat"}},
      {"recipe.activation_group=64", {"recipe.base=coat"}},
      {"recipe.saved_attention=qkv", {"recipe.base=coat"}},
      {"recipe.tf32=true", {"recipe.base=fp32"}},
      {"recipe.loss_scale=1024", {"recipe.loss_scaling=global"}},
      {"recipe.loss_growth=7", {"recipe.loss_scaling=global"}},
      {"recipe.weight_rms=loaded", {"recipe.base=scalify_fp8"}},
      {"optim.momentum=0.5", {"optim.kind=muon"}},
      {"optim.momentum=0.5", {"optim.rules=[{match: '*', kind: sgd, lr: 1}]"}},
      {"optim.nesterov=true", {"optim.kind=sgd"}},
      {"optim.dampening=0.5", {"optim.kind=sgd"}},
      {"optim.muon_scale=original", {"optim.kind=muon"}},
      {"optim.decay_share=0.5", {"optim.schedule=wsd"}},
      {"optim.group=256", {"optim.state_m=e4m3"}},
      {"optim.math=exact", {"optim.state_v=e4m3+x"}},
      {"optim.f32_below=10", {"optim.state_v=bf16"}},
      {"data.stride=4", {"model.kind=bert", "model.head=span"}},
      {"data.mask.share=0.2", {"model.kind=bert", "model.head=masked"}},
      {"data.fields.label=x", texts},
      {"data.fields.partners=[1]", pairs},
      {"data.fields.negatives=[x]", pairs},
      {"data.images.pad=4", {"model.kind=vit", "data.images.crop=random"}},
      {"data.images.scale=[0.5, 1]", {"model.kind=vit", "data.images.crop=random_resized"}},
      {"data.images.mean=[0.1]", {"model.kind=vit"}},
      {"data.too_long=drop", {"data.pack=true"}},
      {"data.text_end=false", {"data.chat.template=chatml"}},
      {"data.source_prefix=x", {"model.kind=t5"}},
      {"data.targets=[x]", {"model.kind=t5"}},
      {"data.spans.share=0.2", {"model.kind=t5"}},
      {"data.spans.length=5", {"model.kind=t5", "data.spans.share=0.2"}},
      {"model.source_seq=32", {"model.kind=marian"}},
      {"train.contrastive_temperature=0.1", pairs},
      {"train.pairwise_beta=0.2", {"train.loss=pairwise"}},
      {"train.on_audit=stop", {"train.audit=5"}},
      {"parallel.shard=optimizer", {"parallel.ranks=2"}},
      {"parallel.gather=bf16", {"parallel.ranks=2"}},
      {"parallel.reduce=e4m3", {"parallel.ranks=2"}},
      {"parallel.transport=nccl", {"parallel.ranks=2"}},
      {"parallel.strict=true", {"parallel.ranks=2"}},
      {"data.token_bytes=4", {"data.train=[" + folder.put("a.bin", "0000") + "]"}},
      {"lora.alpha=8", {}}};
  for (const UnusedCase& c : cases) {
    SCOPED_TRACE(c.key);
    EXPECT_THAT(unused({c.key}), ElementsAre(c.key.substr(0, c.key.find('='))));
    std::vector<std::string> sets = c.with;
    sets.push_back(c.key);
    if (c.with.empty()) continue;
    EXPECT_THAT(unused(sets), IsEmpty());
  }
  EXPECT_THAT(unused({"model.kind=vit", "data.images.pad=4", "data.tokenizer=a.json"}),
              ElementsAre("data.tokenizer", "data.images.pad"));
  EXPECT_THAT(unused({"optim.kind=sgd", "optim.betas=[0.9, 0.9]", "optim.eps=1e-6"}),
              ElementsAre("optim.betas", "optim.eps"));
  EXPECT_THAT(unused({"train.spike_window=5", "train.spike_deviations=0", "train.async_save=false",
                      "train.save_buffer=1MiB"}),
              UnorderedElementsAre("train.spike_window", "train.save_buffer"));
  EXPECT_THAT(unused({"train.sample_every=5", "train.sample_tokens=9"}),
              ElementsAre("train.sample_every", "train.sample_tokens"));
  EXPECT_THAT(unused({"train.sample_every=5", "train.sample_prompts=[Once]"}), IsEmpty());
  EXPECT_THAT(unused({"recipe.override={'*.q_proj': hif8}", "recipe.gradient_rounding=hr",
                      "recipe.base=fp8_linear"}),
              IsEmpty());
  // Gradients in blocks are rounded to nearest.
  for (const auto& [base, rounding] :
       {std::pair{"fp8_linear", "hr"}, std::pair{"fp8_block", "sr"}}) {
    EXPECT_THAT(unused({fmt::format("recipe.base={}", base),
                        fmt::format("recipe.gradient_rounding={}", rounding),
                        "recipe.override={'*': {x: hif8/1x64, w: hif8/32x32, dy: hif8/1x16}}"}),
                ElementsAre("recipe.gradient_rounding"));
  }
}

TEST(UnusedKeys, of_validation_need_some) {
  const LoadedConfig loaded = parse_config(
      "train: {patience: 2, keep_best: true, eval_every: 5, eval_rows: 3, eval_bytes: 9}\n",
      "a.yaml");
  const ModelSpec spec = model_from_config(posix_files(), loaded.config);
  EXPECT_EQ(unused_keys(loaded, spec, HasValidation::no).size(), 5u);
  EXPECT_THAT(unused_keys(loaded, spec, HasValidation::yes), IsEmpty());
}

TEST(UnusedKeys, of_other_models_are_told) {
  EXPECT_THAT(unused({"model.kind=bert", "model.classes=3"}), ElementsAre("model.classes"));
  EXPECT_THAT(unused({"model.kind=vit", "model.vocab=300", "model.seq=64", "model.tied=true",
                      "train.head_chunk=4096", "data.document_boundaries=isolate"}),
              UnorderedElementsAre("model.vocab", "model.seq", "model.tied", "train.head_chunk",
                                   "data.document_boundaries"));
  // As a run's own config.yaml has them, filled in.
  EXPECT_THAT(unused({"model.layers=3", "model.decoder_layers=3", "model.classes=2"}), IsEmpty());
}

TEST(UnusedKeys, of_masters_chats_and_strict_sums_are_told) {
  EXPECT_THAT(unused({"recipe.base=fp32", "optim.master=bf16_sr"}), ElementsAre("optim.master"));
  EXPECT_THAT(unused({"recipe.base=bf16", "optim.master=bf16_sr"}), IsEmpty());
  EXPECT_THAT(unused({"data.chat.template=none", "data.chat.role=who"}),
              ElementsAre("data.chat.role"));
  const std::vector<std::string> strict = {"parallel.ranks=2", "parallel.strict=true"};
  EXPECT_THAT(unused({strict[0], strict[1], "parallel.reduce=bf16"}),
              ElementsAre("parallel.reduce"));
  EXPECT_THAT(unused({strict[0], strict[1], "parallel.reduce=f32"}), IsEmpty());
  EXPECT_THAT(unused(strict), IsEmpty());
}

// So that a run's own config.yaml, in which every key stands, brings none.
TEST(UnusedKeys, what_is_at_its_default_is_none_of_them) {
  EXPECT_THAT(unused({"recipe.scaling=auto", "recipe.gradient_rounding=near", "optim.momentum=0.9",
                      "data.images.pad=0", "optim.state_m=f32"}),
              IsEmpty());
}

TEST(UnusedKeys, are_told_with_their_place_and_what_they_lack) {
  const LoadedConfig loaded = parse_config("data: {images: {pad: 4}}\noptim: {state_m: f32+x}\n",
                                           "a.yaml", {"model.kind=vit"});
  std::vector<std::string> said;
  tell_unused(loaded, model_from_config(posix_files(), loaded.config), {},
              Log([&](LogLevel, const std::string& text) { said.push_back(text); }));
  EXPECT_THAT(said, ElementsAre("a.yaml:1: data.images.pad = 4 has no effect without "
                                "data.images.crop: random",
                                "a.yaml:2: optim.state_m = f32+x: +x has no effect without a "
                                "format in eight bits"));
}

TEST(UnusedKeys, a_separator_of_documents_is_for_text_alone) {
  const test::ScratchFolder folder;
  const std::string text = folder.put("a.txt", "one x two"), chat = folder.put("a.json", "[]");
  const std::string key = "data.document_separator", separator = key + "=x",
                    of_chat = "data.chat.template=chatml";
  const auto of = [&](const std::string& train, std::vector<std::string> more) {
    more.push_back(separator);
    more.push_back("data.train=" + train);
    return unused(more);
  };
  EXPECT_THAT(of("[" + chat + "]", {of_chat}), ElementsAre(key));
  EXPECT_THAT(of("[" + chat + ", " + text + "]", {of_chat}), IsEmpty());
  EXPECT_THAT(of("[" + text + "]", {}), IsEmpty());
  EXPECT_THAT(of("[tokens.npy]", {}), ElementsAre(key));
  EXPECT_THAT(of("[" + text + "]", {"model.kind=bert", "model.head=classes"}), ElementsAre(key));
}

class Zeros : public TokenSource {
 public:
  int64_t n_tokens() const override { return 100; }
  void read(int64_t, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    std::ranges::fill(tokens, 0);
    std::ranges::fill(flags, uint8_t{0});
  }
  uint64_t identity() const override { return 1; }
};

TEST(UnusedKeys, steps_beside_a_share_of_their_file_are_told) {
  int64_t steps = 0;
  const auto tell = [&](const std::string& text, const std::vector<std::string>& sets = {}) {
    LoadedConfig loaded = parse_config(text + "\nmodel: {seq: 10}\n", "a.yaml", sets);
    Dataset data;
    data.train = TokenStream({std::make_shared<Zeros>()});
    std::vector<std::string> said;
    settle_length(loaded, data, Log([&](LogLevel level, const std::string& line) {
                    if (level == LogLevel::warning) said.push_back(line);
                  }));
    steps = loaded.config.train.steps;
    return said;
  };
  EXPECT_THAT(tell("train: {steps: 1, epochs: 1, batch: 2}"),
              ElementsAre("a.yaml:1: train.steps = 1 has no effect beside train.epochs"));
  ASSERT_GT(steps, 1);
  // Keys as a run's own config.yaml has them.
  EXPECT_THAT(tell(fmt::format("train: {{steps: {}, epochs: 1, batch: 2}}", steps)), IsEmpty());
  EXPECT_THAT(tell("train: {steps: 1, batch: 2}", {"train.epochs=1"}), IsEmpty());
  EXPECT_THAT(tell("train: {epochs: 1, batch: 2}", {"train.steps=1"}), IsEmpty());
  EXPECT_THAT(tell("train: {steps: 20, batch: 2}\noptim: {warmup: 7, warmup_share: 0.5}"),
              ElementsAre("a.yaml:2: optim.warmup = 7 has no effect beside optim.warmup_share"));
  EXPECT_THAT(tell("train: {steps: 20, batch: 2}\noptim: {warmup_share: 0.5}"), IsEmpty());
}

// Who sets no epochs gets an error, and not the steps of a run that says nothing.
TEST(UnusedKeys, no_epochs_are_refused_unless_steps_are_said) {
  const auto settle = [](const std::string& text, const std::vector<std::string>& sets = {}) {
    LoadedConfig loaded = parse_config(text + "\nmodel: {seq: 10}\n", "a.yaml", sets);
    Dataset data;
    data.train = TokenStream({std::make_shared<Zeros>()});
    settle_length(loaded, data, Log());
  };
  for (const auto& [text, sets, where] :
       {std::tuple{"train: {batch: 2, epochs: 0}", std::vector<std::string>{}, "a.yaml:1"},
        {"train: {batch: 2, epochs: 3}", {"train.epochs=0"}, "--set"},
        {"train: {batch: 2}", {"train.epochs=0"}, "--set"}}) {
    EXPECT_EQ(
        test::error_of([&, text = text, sets = sets] { settle(text, sets); }),
        std::string("train.epochs: expected a number above 0, or train.steps beside it, got 0 "
                    "(") +
            where + ")");
  }
  settle("train: {batch: 2, epochs: 0, steps: 3}");
  settle("train: {batch: 2, epochs: 1}", {"train.epochs=0", "train.steps=2"});
}

TEST(UnusedKeys, shares_of_a_run_that_are_no_step_are_told) {
  const auto tell = [](const std::string& text, const std::vector<std::string>& sets = {}) {
    LoadedConfig loaded = parse_config(text + "\n", "a.yaml", sets);
    Dataset data;
    data.train = TokenStream({std::make_shared<Zeros>()});
    std::vector<std::string> said;
    settle_length(loaded, data,
                  Log([&](LogLevel, const std::string& line) { said.push_back(line); }));
    return said;
  };
  EXPECT_THAT(tell("train: {steps: 10}\noptim: {warmup_share: 0.04}"),
              ElementsAre("optim.warmup_share: 0.04 of 10 steps is less than half a step: no "
                          "warm-up"));
  EXPECT_THAT(tell("train: {steps: 10}\noptim: {warmup_share: 0.05}"), IsEmpty());
  EXPECT_THAT(tell("train: {steps: 9}"), ElementsAre(HasSubstr("a tenth of them is less than a")));
  EXPECT_THAT(tell("train: {steps: 90}\noptim: {warmup: 50}", {"train.steps=5"}),
              ElementsAre(HasSubstr("a tenth of them is less than a")));
  EXPECT_THAT(tell("train: {steps: 10}"), IsEmpty());
  EXPECT_THAT(tell("train: {steps: 9}\noptim: {warmup: 0}"), IsEmpty());
  EXPECT_THAT(tell("train: {steps: 9}\noptim: {warmup: 0, schedule: wsd, decay_share: 0.1}"),
              ElementsAre(HasSubstr("optim.decay_share: 0.1 of 9 steps is less than a step")));
}

// Two texts of 100 tokens.
TEST(UnusedKeys, weights_with_which_nothing_is_read_are_told) {
  const auto tell = [](const std::string& weight, int steps) {
    const LoadedConfig loaded =
        parse_config(fmt::format("data: {{train: [a.txt, {{path: b.txt, weight: {}}}]}}\n"
                                 "model: {{seq: 10}}\ntrain: {{steps: {}, batch: 2}}\n",
                                 weight, steps),
                     "a.yaml");
    const TokenStream text({std::make_shared<Zeros>()});
    const std::pair<TokenStream, double> both[] = {{text, 1}, {text, std::stod(weight)}};
    Dataset data;
    data.train = TokenStream::weighted(both);
    std::vector<std::string> said;
    tell_unused(loaded, model_from_config(posix_files(), loaded.config), data,
                Log([&](LogLevel, const std::string& line) { said.push_back(line); }));
    return said;
  };
  EXPECT_THAT(tell("1e-300", 1000),
              ElementsAre("data.train: next to nothing of 'b.txt' is read in 1000 steps: its "
                          "weight is 1e-300"));
  EXPECT_THAT(tell("0.01", 10), ElementsAre(HasSubstr("'b.txt'")));
  EXPECT_THAT(tell("0.01", 1000), IsEmpty());
  EXPECT_THAT(tell("1", 1), IsEmpty());
}

}  // namespace
}  // namespace octet::train_unused_keys_test
