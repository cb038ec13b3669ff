// train, eval, generate, inspect and opt as a user calls them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"
#include "io/checkpoint.h"

namespace octet::train_commands_test {
namespace {

using test::metrics;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::tiny_yaml;

// A long run that gets `signal` once its first step is in the metrics; its exit status.
int run_and_signal(const ScratchFolder& folder, int signal) {
  const std::string config = folder / "tiny.yaml";
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(OCTET_PROGRAM, "octet", "train", config.c_str(), "--quiet", "--set",
            "train.steps=100000", "--set", "train.eval_every=0", nullptr);
    ::_exit(127);
  }
  const std::string file = folder / "run/metrics.jsonl";
  for (int i = 0; i < 600; ++i) {
    if (posix_files().exists(file) && posix_files().size(file) > 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ::kill(child, signal);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Interrupt : public testing::TestWithParam<int> {};

TEST_P(Interrupt, saves_a_whole_checkpoint_that_resumes) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", tiny_yaml(folder));
  EXPECT_EQ(run_and_signal(folder, GetParam()), 128 + GetParam());
  const auto newest = Checkpoints(posix_files(), folder / "run/ckpt").newest();
  ASSERT_TRUE(newest.has_value());
  const int64_t step = newest->manifest.step;
  EXPECT_EQ(static_cast<int64_t>(metrics(folder / "run").size()), step);

  const std::string more = fmt::format(" --set train.steps={} --set train.eval_every=0", step + 2);
  const Outcome resumed =
      run_program(folder, "train " + (folder / "tiny.yaml") + " --resume" + more);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, testing::HasSubstr(fmt::format("at step {}\n", step)));
  EXPECT_EQ(static_cast<int64_t>(metrics(folder / "run").size()), step + 2);
}

INSTANTIATE_TEST_SUITE_P(signals, Interrupt, testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto& info) {
                           return std::string(info.param == SIGINT    ? "sigint"
                                              : info.param == SIGTERM ? "sigterm"
                                                                      : "sighup");
                         });

TEST(Commands, an_evaluation_takes_no_larger_batch_than_it_has_rows) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  ASSERT_EQ(run_program(folder, "train --quiet " + config).code, 0);
  const std::string eval = "eval --seq 24 --model " + (folder / "run");
  const Outcome whole = run_program(folder, eval + " --batch 100000000");
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.out, run_program(folder, eval + " --batch 1000").out);
}

// A learning rate that throws the weights out of all bounds: every later step is skipped.
TEST(Commands, a_loss_that_is_not_finite_for_too_long_ends_with_4) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const Outcome outcome = run_program(
      folder, "train --quiet " + config +
                  " --set optim.lr=1000 --set optim.warmup=0 --set train.steps=40 --set "
                  "train.max_nonfinite_steps=3 --set train.debug_nonfinite=true");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err,
              testing::HasSubstr("octet: [train] expected a finite loss and gradient"));
  EXPECT_THAT(outcome.err, testing::ContainsRegex("warning: step [0-9]+: .* in the "));
  const auto lines = metrics(folder / "run");
  ASSERT_GE(lines.size(), 3u);
  for (size_t i = lines.size() - 3; i < lines.size(); ++i) EXPECT_EQ(lines[i].at("skipped"), 1);
}

TEST(Commands, a_short_try_goes_on_to_full_length_with_its_warmup) {
  const ScratchFolder folder;
  const std::string train = "train --quiet " + folder.put("tiny.yaml", tiny_yaml(folder));
  const Outcome begun = run_program(folder, train + " --set train.steps=1");
  EXPECT_EQ(begun.code, 0) << begun.err;
  const Outcome grown = run_program(folder, train + " --resume --set train.steps=6");
  EXPECT_EQ(grown.code, 0) << grown.err;
  EXPECT_EQ(load_config(folder / "run/config.yaml").config.optim.warmup, 0);
  EXPECT_EQ(metrics(folder / "run").size(), 6u);
}

TEST(Commands, a_device_that_is_not_there_is_one_line) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const Outcome outcome = run_program(folder, "train --quiet --device cuda " + config);
  if (outcome.code == 0) GTEST_SKIP() << "this machine has a GPU and the module for it";
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, testing::StartsWith("octet: [cuda] expected "));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST(Commands, out_of_memory_is_three_lines_before_anything_is_allocated_or_written) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const Outcome outcome =
      run_program(folder, "train --quiet " + config + " --set train.batch=1000000");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, testing::StartsWith("octet: [memory] expected at most "));
  EXPECT_THAT(outcome.err, testing::HasSubstr("\n  most of it: activations "));
  EXPECT_THAT(outcome.err, testing::ContainsRegex("\n  what fits: train.batch=[0-9]+ \\("));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 3) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_FALSE(posix_files().exists(folder / "run"));
}

TEST(Commands, a_run_is_trained_inspected_evaluated_and_spoken_to) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const std::string model = folder / "run";
  const Outcome train = run_program(folder, "train " + config + " --json");
  ASSERT_EQ(train.code, 0) << train.err;
  const auto table = nlohmann::json::parse(train.out).at(0);
  EXPECT_EQ(table.at("recipe"), "fp32");
  EXPECT_EQ(table.at("steps"), 6);
  EXPECT_GT(table.at("planned_bytes"), table.at("state_bytes"));
  EXPECT_THAT(train.err, testing::HasSubstr("step 3/6  loss "));

  const auto lines = metrics(model);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_TRUE(lines[1].contains("val_loss"));
  EXPECT_FALSE(lines[2].contains("val_loss"));
  for (const char* key : {"step", "loss", "loss_bits", "grad_norm", "lr", "tokens", "mem_bytes"}) {
    EXPECT_TRUE(lines[0].contains(key)) << key;
  }

  const Outcome inspect = run_program(folder, "inspect " + model + " --json");
  ASSERT_EQ(inspect.code, 0) << inspect.err;
  EXPECT_EQ(nlohmann::json::parse(inspect.out).at("manifest").at("step"), 6);
  // For a reader the configuration is lines by section, none of them long.
  const std::string shown = run_program(folder, "inspect " + model).out;
  EXPECT_THAT(shown, testing::HasSubstr("\n  config:\n"));
  EXPECT_THAT(shown, testing::HasSubstr("\n    model:\n"));
  EXPECT_THAT(shown, testing::ContainsRegex("\n      hidden: [0-9]+\n"));
  EXPECT_THAT(shown, testing::Not(testing::ContainsRegex("[^\n]{300}")));

  const Outcome eval = run_program(folder, "eval --model " + model + " --max-tokens 199 --json");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_NEAR(nlohmann::json::parse(eval.out).at(0).at("nll").get<double>(),
              lines[5].at("val_loss").get<double>(), 1e-6);

  const Outcome text = run_program(
      folder, "generate --model " + model + " --prompt sca --max-tokens 9 --temperature 0");
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out.size(), 3u + 9u + 1u);
  EXPECT_EQ(text.out.substr(0, 3), "sca");
}

TEST(Commands, sampled_text_depends_on_the_seed_alone) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  ASSERT_EQ(run_program(folder, "train " + config + " --quiet").code, 0);
  const std::string command = "generate --model " + (folder / "run") +
                              " --prompt a --max-tokens 30 --temperature 1 --seed ";
  const std::string first = run_program(folder, command + "1").out;
  EXPECT_EQ(run_program(folder, command + "1 --threads 1").out, first);
  EXPECT_NE(run_program(folder, command + "2").out, first);
}

TEST(Commands, compare_trains_each_recipe_and_shows_a_sample) {
  const ScratchFolder folder;
  const std::string data = folder.put("text/a.txt", test::easy_text(90000));
  folder.put("text/b.txt", test::easy_text(8000));
  const Outcome compare =
      run_program(folder, "compare --steps 2 --recipes fp32,bf16 --json --data " +
                              (folder / "text") + " --out " + (folder / "compare"));
  ASSERT_EQ(compare.code, 0) << compare.err;
  const auto rows = nlohmann::json::parse(compare.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("recipe"), "fp32");
  EXPECT_EQ(rows[1].at("recipe"), "bf16");
  EXPECT_NEAR(rows[0].at("train_loss").get<double>(), rows[1].at("train_loss").get<double>(), 0.02);
  EXPECT_THAT(rows[1].at("sample").get<std::string>(), testing::StartsWith("#include <"));
  EXPECT_TRUE(posix_files().exists(folder / "compare/bf16/ckpt/step-000002/COMPLETE"));
}

TEST(Commands, opt_prints_what_it_can_read_again) {
  const ScratchFolder folder;
  const std::string graph = folder.put("a.ir",
                                       "graph \"g\" phase logical\n"
                                       "%0 = input parameter \"w\" : real[4]\n"
                                       "%1 = neg(%0) : real[4]\n"
                                       "%2 = neg(%0) : real[4]\n"
                                       "output \"y\" %1\n");
  const Outcome once = run_program(folder, "opt " + graph + " --passes remove_dead");
  ASSERT_EQ(once.code, 0) << once.err;
  EXPECT_EQ(once.out.find("%2"), std::string::npos);
  const Outcome again = run_program(folder, "opt " + folder.put("b.ir", once.out));
  EXPECT_EQ(again.out, once.out);
  EXPECT_EQ(run_program(folder, "opt " + graph + " --passes remove_ded").code, 2);
}

struct BadCall {
  std::string name, arguments;
  int code;
  std::string line;  // CONFIG and DIR stand for paths
};
void PrintTo(const BadCall& call, std::ostream* out) {
  *out << call.name;
}

class BadCalls : public testing::TestWithParam<BadCall> {};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST_P(BadCalls, end_with_their_code_and_one_line) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", tiny_yaml(folder));
  folder.put("bytes.bin", "abc");
  folder.put("empty/nothing.txt", "");
  const Outcome outcome = run_program(folder, replaced(GetParam().arguments, "DIR", folder.path()));
  EXPECT_EQ(outcome.code, GetParam().code);
  const std::string last = outcome.err.substr(outcome.err.rfind("octet: "));
  EXPECT_EQ(replaced(last, folder.path(), "DIR"), "octet: " + GetParam().line + "\n");
}

const BadCall kBadCalls[] = {
    {"no_data", "train DIR/tiny.yaml --set data.train=[DIR/none.txt]", 3,
     "[data] 'DIR/none.txt': expected a file or a folder, got neither: --set data.train=FILE names "
     "another"},
    {"torn_shard", "train DIR/tiny.yaml --set data.train=[DIR/bytes.bin]", 3,
     "[shard] DIR/bytes.bin: expected a multiple of 2 bytes, got 3"},
    {"small_vocabulary",
     "train DIR/tiny.yaml --set model.vocab=300 --set data.train=[DIR/bytes.bin] "
     "--set data.token_bytes=1",
     2, "--set: data.token_bytes: expected one of 0, 2, 4, got '1'"},
    {"no_model", "eval --model DIR/none --data DIR/text.txt", 3,
     "[model] 'DIR/none': expected a run (config.yaml, ckpt/), one of its checkpoints, or a model "
     "folder (config.json, model.safetensors), got no such path"},
    {"unknown_task", "eval --model DIR --tasks perplexty", 2,
     "--tasks: expected nll or perplexity, alone or with :FILE, spans:FILE, or evaluation tasks, "
     "got "
     "'perplexty'; the nearest is "
     "perplexity"},
    {"a_text_to_inspect", "inspect DIR/tiny.yaml", 3,
     "[inspect] 'DIR/tiny.yaml': expected a run, a checkpoint, a model folder or a .safetensors "
     "file, got another file"},
    {"a_folder_to_train", "train DIR/empty", 2,
     "expected a configuration file or the name of a recipe, got the folder 'DIR/empty'"},
    {"nothing_to_inspect", "inspect DIR/none", 3,
     "[inspect] 'DIR/none': expected a run, a checkpoint, a model folder or a .safetensors file, "
     "got no such path"},
};

INSTANTIATE_TEST_SUITE_P(calls, BadCalls, testing::ValuesIn(kBadCalls),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace octet::train_commands_test
