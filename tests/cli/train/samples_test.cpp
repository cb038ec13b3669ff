// train.sample_prompts: texts that a model writes while it is trained (train/run_samples.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "cli/program_run.h"
#include "cli/train/trainer_run.h"
#include "train/run_samples.h"
#include "unit/base/error_of.h"

namespace octet::train_samples_test {
namespace {

using test::error_of;
using test::run_program;
using test::ScratchFolder;
using test::tiny_config;
using test::TinyRun;
using testing::ElementsAre;
using testing::HasSubstr;

// Prompts, one shorter than a padded row and one longer, and room for a text behind both.
std::vector<std::string> sampled(std::vector<std::string> sets = {}) {
  sets.insert(sets.begin(), {"model.seq=40",
                             "train.sample_prompts=[\"scale am\", "
                             "\"group moment remainder\"]",
                             "train.sample_tokens=12"});
  return sets;
}

std::vector<TextSample> samples_of(const std::string& run) {
  std::istringstream text(posix_files().read_text(run + "/samples.jsonl"));
  std::vector<TextSample> samples;
  for (std::string line; std::getline(text, line);) samples.push_back(parse_sample(line).value());
  return samples;
}

std::vector<int64_t> steps_of(const std::vector<TextSample>& samples) {
  std::vector<int64_t> steps;
  for (const TextSample& sample : samples) steps.push_back(sample.step);
  return steps;
}

// Texts of `octet generate` behind each prompt, by the run's newest checkpoint.
std::vector<std::string> generated(const ScratchFolder& folder, const std::string& run,
                                   const std::string& flags) {
  std::string prompts;
  for (const TextSample& sample : samples_of(run)) {
    if (sample.step == samples_of(run).back().step) prompts += sample.prompt + "\n";
  }
  const test::Outcome outcome =
      run_program(folder, "generate --quiet --json --model " + run + " --prompts " +
                              folder.put("prompts.txt", prompts) + " " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<std::string> texts;
  for (const auto& row : nlohmann::json::parse(outcome.out)) texts.push_back(row.at("completion"));
  return texts;
}

std::vector<std::string> last_texts(const std::string& run) {
  std::vector<std::string> texts;
  const std::vector<TextSample> all = samples_of(run);
  for (const TextSample& sample : all) {
    if (sample.step == all.back().step) texts.push_back(sample.text);
  }
  return texts;
}

class Samples : public testing::TestWithParam<const char*> {};

TEST_P(Samples, change_no_bit_of_a_run) {
  const ScratchFolder folder;
  const std::string recipe = std::string("recipe=") + GetParam();
  const auto config = [&](const std::string& name, std::vector<std::string> sets) {
    sets.insert(sets.end(), {recipe, "model.seq=40", "out=" + (folder / name)});
    return tiny_config(folder, sets);
  };
  TinyRun(config("without", {})).trainer.run(StartMode::fresh, {});
  TinyRun(config("with", sampled())).trainer.run(StartMode::fresh, {});
  EXPECT_EQ(test::metrics(folder / "with"), test::metrics(folder / "without"));
  EXPECT_TRUE(test::checkpoint_bytes(folder / "with", 6) ==
              test::checkpoint_bytes(folder / "without", 6));
  EXPECT_FALSE(posix_files().exists(folder / "without/samples.jsonl"));
  EXPECT_THAT(steps_of(samples_of(folder / "with")), ElementsAre(2, 2, 4, 4, 6, 6));
}

INSTANTIATE_TEST_SUITE_P(recipes, Samples,
                         testing::Values("fp32", "bf16", "coat", "coat-fast", "hif8", "mxfp8"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Samples, are_what_generation_writes_by_the_same_weights) {
  const ScratchFolder folder;
  TinyRun run(tiny_config(folder, sampled({"optim.lr=0.02", "train.steps=40",
                                           "train.sample_every=15", "train.eval_every=0"})));
  std::vector<std::string> lines;
  TrainHooks hooks;
  hooks.on_step = [](const StepReport&) {};
  hooks.log = Log([&](LogLevel, const std::string& line) { lines.push_back(line); });
  run.trainer.run(StartMode::fresh, hooks);
  const std::vector<TextSample> samples = samples_of(folder / "run");
  EXPECT_THAT(steps_of(samples), ElementsAre(15, 15, 30, 30, 40, 40));
  EXPECT_EQ(samples[4].prompt, "scale am");
  EXPECT_EQ(samples[5].prompt, "group moment remainder");
  EXPECT_EQ(samples[5].stop, "length");
  EXPECT_EQ(samples[5].text.size(), 12u);  // a byte a token
  EXPECT_NE(samples[5].text, samples[1].text);
  EXPECT_EQ(last_texts(folder / "run"), generated(folder, folder / "run", "--max-tokens 12"));
  EXPECT_THAT(lines, testing::Contains(HasSubstr("step 40 writes behind 'scale am': ")));
}

TEST(Samples, end_with_the_row_and_are_drawn_anew_for_each_prompt_by_the_seed) {
  const ScratchFolder folder;
  const auto texts = [&](const std::string& name) {
    TinyRun run(tiny_config(
        folder, sampled({"out=" + (folder / name), "train.sample_tokens=500",
                         "train.sample_prompts=[scale, scale]", "train.sample_temperature=1"})));
    run.trainer.run(StartMode::fresh, {});
    return last_texts(folder / name);
  };
  const std::vector<std::string> first = texts("a");
  EXPECT_EQ(first, texts("b"));
  EXPECT_NE(first.at(0), first.at(1));
  EXPECT_LE(first.at(0).size(), 35u * 3);  // bytes that are no UTF-8 take three
}

TEST(Samples, of_a_run_that_is_resumed_are_those_of_a_whole_one) {
  const ScratchFolder folder;
  const auto config = [&](const std::string& name, std::vector<std::string> more = {}) {
    more.push_back("out=" + (folder / name));
    more.push_back("train.sample_every=1");
    return tiny_config(folder, sampled(more));
  };
  TinyRun(config("whole")).trainer.run(StartMode::fresh, {});
  std::atomic<int> flag = 0;
  TrainHooks hooks;
  hooks.stop = &flag;
  hooks.on_step = [&flag](const StepReport& report) {
    if (report.step == 3) flag = 15;
  };
  TinyRun(config("parts")).trainer.run(StartMode::fresh, hooks);
  const std::string path = folder / "parts/samples.jsonl";
  const std::string lines = posix_files().read_text(path);
  // Lines of a killed process behind its checkpoint, the last one cut short.
  folder.put("parts/samples.jsonl",
             lines + R"({"step":4,"prompt":"scale am","text":"x","stop":"length"})" + "\n" +
                 R"({"step":4,"pro)");
  TinyRun(config("parts")).trainer.run(StartMode::resume, {});
  EXPECT_EQ(posix_files().read_text(path), posix_files().read_text(folder / "whole/samples.jsonl"));
  EXPECT_EQ(samples_of(folder / "whole").size(), 12u);
}

TEST(Samples, of_steps_that_are_repeated_without_prompts_go) {
  const ScratchFolder folder;
  TinyRun(tiny_config(folder, sampled({"train.steps=4", "train.save_every=2"})))
      .trainer.run(StartMode::fresh, {});
  std::filesystem::remove_all(folder / "run/ckpt/step-000004");
  TinyRun(tiny_config(folder, {"model.seq=40", "train.steps=4"}))
      .trainer.run(StartMode::resume, {});
  EXPECT_THAT(steps_of(samples_of(folder / "run")), ElementsAre(2, 2));
}

TEST(Samples, of_conversations_are_answers_that_end_as_the_template_has_it) {
  const ScratchFolder folder;
  std::string talks;
  for (int i = 0; i < 40; ++i)
    talks += R"({"prompt": "ab", "completion": "ba"})"
             "\n";
  const RunConfig config = tiny_config(
      folder, {"data.train=[" + folder.put("talks.jsonl", talks) + "]", "data.chat.template=chatml",
               "model.seq=128", "train.steps=80", "optim.lr=0.02", "train.batch=8",
               "train.eval_every=0", "train.sample_prompts=[ab]"});
  TinyRun(config).trainer.run(StartMode::fresh, {});
  const TextSample sample = samples_of(folder / "run").back();
  EXPECT_EQ(sample.prompt, "ab");
  EXPECT_EQ(sample.text, "ba");
  EXPECT_EQ(sample.stop, "text");  // which is <|im_end|>
}

TEST(Samples, of_ranks_are_those_of_whole_weights) {
  for (const char* shard : {"optimizer", "gradients", "parameters"}) {
    const ScratchFolder folder;
    const std::string yaml = folder.put("tiny.yaml", test::tiny_yaml(folder));
    std::string sets = " --ranks 2 --set parallel.shard=" + std::string(shard);
    for (const std::string& set : sampled({"optim.lr=0.02", "train.steps=20"}))
      sets += " --set '" + set + "'";
    const test::Outcome outcome = run_program(folder, "train --quiet --threads 2 " + yaml + sets);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(samples_of(folder / "run").size(), 20u);
    EXPECT_EQ(last_texts(folder / "run"), generated(folder, folder / "run", "--max-tokens 12"))
        << shard;
  }
}

TEST(Samples, are_missing_with_a_warning_where_weights_are_not_finite) {
  const ScratchFolder folder;
  TinyRun run(tiny_config(folder, sampled()));
  std::vector<std::string> warnings;
  TrainHooks hooks;
  hooks.before_step = [&](int64_t step) {
    if (step == 3) run.fill("model.norm.weight", NAN);
  };
  hooks.log = Log([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::warning) warnings.push_back(line);
  });
  EXPECT_THAT(error_of([&] { run.trainer.run(StartMode::fresh, hooks); }), HasSubstr("[train]"));
  EXPECT_THAT(warnings, testing::Contains(HasSubstr("step 4: no samples: ")));
  EXPECT_THAT(steps_of(samples_of(folder / "run")), ElementsAre(2, 2));
}

TEST(Samples, are_refused_by_name_where_they_cannot_be_written) {
  const ScratchFolder folder;
  const auto problem = [&](const std::vector<std::string>& sets, const ModelSpec* spec = nullptr) {
    const RunConfig config = tiny_config(folder, sets);
    return error_of([&] {
      make_run_samples(posix_files(), config,
                       spec != nullptr ? *spec : model_from_config(posix_files(), config));
    });
  };
  for (const ModelKind kind : {ModelKind::bert, ModelKind::vit}) {
    ModelSpec spec;
    spec.kind = kind;
    EXPECT_THAT(problem(sampled(), &spec),
                HasSubstr(fmt::format("train.sample_prompts: expected none for {}, which writes no "
                                      "text by itself, got 2",
                                      model_def(kind).name)));
  }
  EXPECT_THAT(problem(sampled({"model.seq=22"})),
              HasSubstr("train.sample_prompts: expected texts of 1 to 21 tokens, one below "
                        "model.seq, got 22 of 'group moment remainder'"));
  EXPECT_THAT(problem(sampled({"train.sample_prompts=['']"})), HasSubstr("got 0 of ''"));
  const std::string shard = folder.put("tokens.bin", std::string(400, '\1'));
  EXPECT_THAT(problem(sampled({"data.train=[" + shard + "]"})),
              HasSubstr("train.sample_prompts: expected texts that the run's tokenizer "
                        "(data.tokenizer) reads, got 'scale am': "));
  EXPECT_EQ(problem(sampled()), "no error");
}

}  // namespace
}  // namespace octet::train_samples_test
