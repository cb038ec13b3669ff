// `octet train --model` and `octet plan --model`: short flags of keys, and what a --model may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/finetune/small_model.h"
#include "cli/program_run.h"

namespace octet::test::finetune_flags_test {
namespace {

class ModelFlagsOfTrain : public testing::Test {
 protected:
  ModelFlagsOfTrain() {
    put_model(folder_, small_spec());
    folder_.put("text.txt", easy_text(4096));
  }
  // The program in the folder, its hub's cache beside.
  Outcome run(const std::string& arguments) {
    const std::string before = "sh -c 'cd " + folder_.path() + " && HF_HOME=" + (folder_ / "hf") +
                               " HF_HUB_CACHE= exec \"$0\" " + arguments + "' ";
    return run_shell(before + std::string(OCTET_PROGRAM));
  }
  Outcome run_shell(const std::string& command) {
    const std::string out = folder_ / "out.txt", err = folder_ / "err.txt";
    const int status = std::system((command + " >" + out + " 2>" + err + " </dev/null").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, posix_files().read_text(out),
            posix_files().read_text(err)};
  }
  Outcome train(const std::string& arguments) {
    return run("train --model model --data text.txt --out run --overwrite " + arguments);
  }
  std::string config() { return posix_files().read_text(folder_ / "run/config.yaml"); }

  ScratchFolder folder_;
};

TEST_F(ModelFlagsOfTrain, flags_are_the_same_as_sets_of_their_keys) {
  const std::string same = " --set train.export=none --quiet";
  const Outcome by_flags = train("--lr 2e-3 --epochs 0.5 --batch 2 --seq 32 --lora-rank 4" + same);
  ASSERT_EQ(by_flags.code, 0) << by_flags.err;
  const std::string flags = config();
  const Outcome by_sets = train(
      "--set optim.lr=2e-3 --set train.epochs=0.5 --set train.batch=2 --set model.seq=32 "
      "--set lora.rank=4" +
      same);
  ASSERT_EQ(by_sets.code, 0) << by_sets.err;
  EXPECT_EQ(flags, config());
  EXPECT_THAT(flags, testing::HasSubstr("rank: 4"));
}

// A recipe that is passed over in silence trains another model than the one that was asked for.
TEST_F(ModelFlagsOfTrain, are_said_over_a_file_too) {
  folder_.put("c.yaml",
              "model: {path: model}\nrecipe: bf16\ndata: {train: [none.txt]}\nout: run\n"
              "train: {steps: 1, batch: 1, eval_every: 0, export: none}\n");
  const Outcome by_flags = run("train c.yaml --data text.txt --recipe fp32 --out run --seq 32");
  ASSERT_EQ(by_flags.code, 0) << by_flags.err;
  EXPECT_THAT(by_flags.err, testing::HasSubstr("recipe fp32"));
  EXPECT_THAT(config(), testing::HasSubstr("seq: 32"));
  const Outcome other = run("train c.yaml --data text.txt --out b --seq 32 --quiet");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(posix_files().read_text(folder_ / "b/config.yaml"),
              testing::HasSubstr("\nout: \"b\"\n"));
  const Outcome both = run("train c.yaml --recipe fp32 --set recipe=coat");
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, testing::HasSubstr("--recipe fp32: expected this or --set recipe=coat"));
  const Outcome two = run("train c.yaml --model model --data text.txt");
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, testing::HasSubstr("got a file and --model"));
}

TEST_F(ModelFlagsOfTrain, a_flag_beside_a_set_of_its_key_is_refused_and_names_both) {
  const Outcome plain = train("--lr 2e-3 --set optim.lr=1e-3");
  EXPECT_EQ(plain.code, 2);
  EXPECT_EQ(plain.err,
            "octet: --lr 2e-3: expected this or --set optim.lr=1e-3, got both of the key "
            "optim.lr\n");
  const Outcome map = train("--seq 32 --set \"model={seq: 16}\"");
  EXPECT_EQ(map.code, 2);
  EXPECT_THAT(map.err, testing::HasSubstr("--seq 32: expected this or --set model={seq: 16}"));
  const Outcome range = train("--batch 0");
  EXPECT_EQ(range.code, 2);
  EXPECT_THAT(range.err, testing::HasSubstr("--batch: expected an integer in [1, 1048576], got 0"));
}

TEST_F(ModelFlagsOfTrain, an_empty_word_is_refused) {
  for (const char* flag : {"--out", "--recipe", "--data", "--model", "--adapter"}) {
    const Outcome outcome = train(std::string(flag) + " \"\"");
    EXPECT_EQ(outcome.code, 2) << flag;
    EXPECT_THAT(outcome.err, testing::HasSubstr(std::string(flag) + ": expected a value"));
  }
}

TEST_F(ModelFlagsOfTrain, a_model_that_is_not_there_is_named) {
  const Outcome outcome = run("train --model nowhere --data text.txt --out run");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, testing::HasSubstr("[model] 'nowhere': expected a model folder"));
  EXPECT_THAT(outcome.err, testing::HasSubstr("got no such path"));
}

// Nobody wrote what fine-tuning sets.
TEST_F(ModelFlagsOfTrain, defaults_that_pairs_do_not_use_are_not_told) {
  std::string pairs;
  for (int i = 0; i < 30; ++i) {
    const std::string n = std::to_string(i);
    pairs += R"({"prompt": ")" + n + R"(", "chosen": "yes )" + n + R"(", "rejected": "no"})" + "\n";
  }
  folder_.put("pairs.jsonl", pairs);
  const Outcome outcome =
      run("train --model model --data pairs.jsonl --loss dpo --out run --epochs 0.2 --quiet "
          "--set train.export=none");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, testing::Not(testing::HasSubstr("train.eval_bytes")));
}

TEST_F(ModelFlagsOfTrain, no_epochs_are_refused_beside_a_files_steps_too) {
  folder_.put("run.yaml", "train: {steps: 3}\n");
  for (const std::string from : {"run.yaml", "--model model"}) {
    const Outcome outcome = run("train " + from + " --data text.txt --out none --epochs 0");
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err,
              "octet: --epochs: expected a number above 0, got 0 (see octet train --help)\n");
  }
}

TEST_F(ModelFlagsOfTrain, help_lists_them) {
  for (const char* command : {"train", "plan"}) {
    const std::string help = run(std::string(command) + " --help").out;
    for (const char* flag : {"--batch", "--seq", "--lora-rank"})
      EXPECT_THAT(help, testing::HasSubstr(flag)) << command;
    const bool has_rates = std::string_view(command) == "train";  // a plan is the same with any
    for (const char* flag : {"--lr ", "--epochs "})
      EXPECT_EQ(help.find(flag) != help.npos, has_rates) << command << flag;
  }
}

TEST_F(ModelFlagsOfTrain, a_run_stands_for_its_export) {
  ASSERT_EQ(train("--epochs 0.2 --quiet").code, 0);
  const Outcome second = run("train --model run --data text.txt --out second --epochs 0.2");
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(posix_files().read_text(folder_ / "second/config.yaml"),
              testing::HasSubstr("run/export"));
}

TEST_F(ModelFlagsOfTrain, a_run_without_an_export_names_the_line_that_makes_one) {
  ASSERT_EQ(train("--epochs 0.2 --quiet --set train.export=none").code, 0);
  const Outcome refused = run("train --model run --data text.txt --out second");
  EXPECT_EQ(refused.code, 3);
  EXPECT_EQ(refused.err,
            "octet: [model] 'run': expected a model folder, got a run without an export: `octet "
            "convert run run/export` makes one\n");
  EXPECT_EQ(run("convert run run/export").code, 0);  // as it says
  EXPECT_EQ(run("train --model run --data text.txt --out second --epochs 0.2").code, 0);
}

TEST_F(ModelFlagsOfTrain, a_name_of_the_hub_is_looked_up_in_its_local_cache) {
  const std::string plan = "plan --model some-org/Small_1.5 --seq 32 --json";
  const Outcome missing = run(plan);
  EXPECT_EQ(missing.code, 3);
  EXPECT_EQ(missing.err,
            "octet: [model] 'some-org/Small_1.5': expected a folder, or a model of the hub's local "
            "cache, got neither: `hf download some-org/Small_1.5` puts it there\n");
  const std::string cached = "hf/hub/models--some-org--Small_1.5/";
  folder_.put(cached + "refs/main", "0123abcd\n");
  put_model(folder_, small_spec(), cached + "snapshots/0123abcd");
  EXPECT_EQ(run(plan).code, 0);
  const Outcome trained =
      run("train --model some-org/Small_1.5 --data text.txt --out run --epochs 0.2");
  EXPECT_EQ(trained.code, 0) << trained.err;
  // Commands that read runs find it, too.
  const Outcome evaluated = run("eval --model some-org/Small_1.5 --data text.txt --max-tokens 64");
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  const Outcome generated =
      run("generate --model some-org/Small_1.5 --tokenizer bytes --prompt a --max-tokens 2");
  EXPECT_EQ(generated.code, 0) << generated.err;
  const Outcome converted = run("convert some-org/Small_1.5 converted");
  EXPECT_EQ(converted.code, 0) << converted.err;
  folder_.put(cached + "refs/main", "../../elsewhere\n");
  EXPECT_EQ(run(plan).code, 3);
  // A folder beside its kin that is not there is no name of the hub.
  folder_.put("runs/first/note.txt", "");
  EXPECT_EQ(run("generate --model runs/second --prompt a").err,
            "octet: [model] 'runs/second': expected a run or a model folder, got no such path\n");
}

TEST_F(ModelFlagsOfTrain, a_folder_that_is_no_model_is_told_as_one) {
  folder_.put("notes/note.txt", "");
  for (const char* command : {"plan", "train --data text.txt"}) {
    EXPECT_EQ(
        run(std::string(command) + " --model a/b/none").err,
        "octet: [model] 'a/b/none': expected a model folder (config.json, model.safetensors), a "
        "run with an export, a .gguf file, or org/name of the hub's local cache, got no such "
        "path\n");
    EXPECT_EQ(
        run(std::string(command) + " --model notes").err,
        "octet: [model] 'notes': expected a model folder (config.json, model.safetensors), a run "
        "with an export, a .gguf file, or org/name of the hub's local cache, got a folder without "
        "config.json\n");
  }
}

TEST_F(ModelFlagsOfTrain, a_folder_in_the_place_of_a_configuration_is_told_what_it_is) {
  const std::string before =
      "octet: expected a configuration file or the name of a recipe, got the folder ";
  folder_.put("folder/config.json", "{}");
  EXPECT_EQ(run("plan folder").err, before + "'folder': --model takes the folder of a model\n");
  folder_.put("run/config.yaml", "");
  EXPECT_EQ(run("plan run").err, before + "'run': a run's is run/config.yaml\n");
}

TEST_F(ModelFlagsOfTrain, a_plan_has_the_rows_of_a_run_on_the_same_data) {
  folder_.put(
      "model/tokenizer.json",
      R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"},
                  "pre_tokenizer": {"type": "WhitespaceSplit"}})");
  std::string words = "b";
  for (int i = 0; i < 40; ++i) words += " a";  // 81 bytes
  folder_.put("talks.jsonl", R"({"prompt": "a", "completion": "b"})"
                             "\n"
                             R"({"prompt": "a", "completion": ")" +
                                 words + "\"}\n");
  const std::string flags =
      " --model model --data talks.jsonl --set data.chat.template=plain "
      "--set data.text_end=false --set data.val=[talks.jsonl]";
  const Outcome planned = run("plan" + flags);
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, testing::HasSubstr("batch 1 x 48"));
  EXPECT_FALSE(posix_files().exists(folder_ / "runs"));
  const Outcome trained = run("train --out run --epochs 1 --quiet" + flags);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(config(), testing::HasSubstr("seq: 48"));
  EXPECT_EQ(run("plan --data text.txt").err,
            "octet: plan: expected a configuration file, or --model DIR, got no model\n");
}

TEST_F(ModelFlagsOfTrain, a_config_alone_is_enough_to_plan) {
  ModelSpec spec = small_spec();
  spec.hidden = 256;
  spec.ffn = 1024;
  spec.layers = 4;
  folder_.put("alone/config.json", hf_config_text(resolved(spec)));
  const Outcome all = run("plan --model alone --seq 64 --batch 2 --json");
  ASSERT_EQ(all.code, 0) << all.err;
  const Outcome adapters =
      run("plan --model alone --seq 64 --batch 2 --lora-rank 16 --set lora.base=e4m3 --json");
  ASSERT_EQ(adapters.code, 0) << adapters.err;
  const auto bytes = [](const Outcome& plan) {
    return nlohmann::json::parse(plan.out)["peak_bytes"].get<int64_t>();
  };
  EXPECT_LT(bytes(adapters), bytes(all));
  // Adapters are named among what fits where memory is short, in three short lines.
  const int64_t budget = bytes(adapters) + bytes(adapters) / 20;
  const Outcome refused = run("plan --model alone --seq 64 --batch 2 --set train.memory_budget=" +
                              std::to_string(budget));
  EXPECT_EQ(refused.code, 5);
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 3) << refused.err;
  EXPECT_THAT(refused.err, testing::HasSubstr("\n  what fits: "));
  EXPECT_THAT(refused.err, testing::HasSubstr("lora.rank=16 lora.base=e4m3 ("));
  EXPECT_EQ(run("plan").err,
            "octet: plan: expected a configuration file, or --model DIR, got no model\n");
}

}  // namespace
}  // namespace octet::test::finetune_flags_test
