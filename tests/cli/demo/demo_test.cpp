// octet demo with its small model and few steps; ctest -L slow runs it whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/program_run.h"
#include "cli/signals/child.h"

namespace octet::test::demo_test {
namespace {

using testing::HasSubstr;

constexpr int kMaxLines = 60;

class DemoCommand : public testing::Test {
 protected:
  // In the place of $out: a folder of the test's own.
  Outcome demo(const std::string& flags) {
    return run_program(folder_, "demo --offline --threads 1 --out " + out_ + " " + flags);
  }
  nlohmann::json parts() const {
    return nlohmann::json::parse(posix_files().read_text(out_ + "/demo.json"));
  }

  ScratchFolder folder_;
  const std::string out_ = folder_ / "demo";
};

TEST_F(DemoCommand, talks_trains_talks_compares_and_says_what_comes_next_in_sixty_lines) {
  const Outcome outcome = demo("--steps 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_LE(std::ranges::count(outcome.out, '\n'), kMaxLines) << outcome.out;
  for (const char* said :
       {"1/4", "The capital of Italy is Rome.", "The opposite of hot is cold.",
        "A dog has four legs.", "tokens/s)", "2/4", "step 2/2", "3/4", "4/4", "bf16",
        "coat - bf16: ", "/report.html", "generate --model ", " plan llama-2-7b"})
    EXPECT_THAT(outcome.out, HasSubstr(said));
  EXPECT_THAT(posix_files().read_text(out_ + "/report.html"), HasSubstr("<html"));
  const nlohmann::json kept = parts();
  for (const char* run : {"finetune", "bf16", "coat"})
    EXPECT_EQ(kept[run]["result"]["steps"], 2) << run;
  EXPECT_GT(kept["difference"]["result"]["stderr_difference"].get<double>(), 0);
}

TEST_F(DemoCommand, what_is_done_is_shown_again_and_not_done_again) {
  ASSERT_EQ(demo("--steps 1").code, 0);
  const auto trained = std::filesystem::last_write_time(out_ + "/finetune/metrics.jsonl");
  const std::string kept = parts().dump();
  const Outcome again = demo("--steps 1");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("The capital of Italy is Rome."));
  EXPECT_THAT(again.out, HasSubstr("done before: 1 steps"));
  EXPECT_EQ(std::filesystem::last_write_time(out_ + "/finetune/metrics.jsonl"), trained);
  EXPECT_EQ(parts().dump(), kept);
  // Other settings are other runs, in the place of those.
  ASSERT_EQ(demo("--steps 2").code, 0);
  EXPECT_EQ(parts()["finetune"]["result"]["steps"], 2);
}

TEST_F(DemoCommand, an_interrupted_run_goes_on_where_it_was) {
  const std::vector<std::string> words = {"demo",    "--offline", "--threads", "1",
                                          "--steps", "100000",    "--out",     out_};
  const std::string metrics = out_ + "/finetune/metrics.jsonl";
  const auto n_steps = [&] {
    return posix_files().exists(metrics)
               ? std::ranges::count(posix_files().read_text(metrics), '\n')
               : 0;
  };
  const auto stop_after = [&](int64_t steps) {
    Child child(folder_, words);
    for (int i = 0; i < 60'000 && child.is_running() && n_steps() < steps; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.signal(SIGINT);
    EXPECT_EQ(child.code_within(60), 130);
  };
  stop_after(1);
  const std::string before = posix_files().read_text(metrics);
  stop_after(n_steps() + 2);
  const std::string after = posix_files().read_text(metrics);
  EXPECT_TRUE(after.starts_with(before));
  EXPECT_GT(after.size(), before.size());
  EXPECT_TRUE(parts()["before"].contains("result"));
  EXPECT_FALSE(parts()["finetune"].contains("result"));
}

TEST_F(DemoCommand, a_run_that_is_not_its_own_stays) {
  folder_.put("text.txt", std::string(4096, 'a') + "bcd");
  const std::string train =
      "train recipes/llama-3m.yaml --quiet --set train.steps=1 --set model.hidden=32 --set "
      "model.layers=1 "
      "--set model.ffn=32 --set model.seq=16 --set data.train=" +
      (folder_ / "text.txt") + " --set out=" + out_ + "/finetune";
  const std::string program = std::string("cd ") + OCTET_SOURCE_DIR + " && ";
  ASSERT_EQ(std::system((program + OCTET_PROGRAM + " " + train + " >/dev/null 2>&1").c_str()), 0);
  const std::string before = posix_files().read_text(out_ + "/finetune/metrics.jsonl");
  const Outcome outcome = demo("--steps 1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/finetune"));
  EXPECT_EQ(posix_files().read_text(out_ + "/finetune/metrics.jsonl"), before);
}

TEST_F(DemoCommand, gives_programs_one_json_object) {
  const Outcome outcome = demo("--steps 1 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result["model"], "small");
  EXPECT_EQ(result["before"]["answers"][0]["answer"], "The capital of Italy is Rome.");
  EXPECT_TRUE(result["runs"]["coat"].contains("stderr_difference"));
  EXPECT_EQ(result["report"], out_ + "/report.html");
}

TEST_F(DemoCommand, compares_recipes_on_a_text_of_the_users) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "The number " + std::to_string(i * i) + " is a square.\n";
  const Outcome outcome = demo("--steps 1 --text " + folder_.put("text.txt", text));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(posix_files().read_text(out_ + "/coat/config.yaml"), HasSubstr("text.txt"));
  EXPECT_EQ(demo("--steps 1 --text " + (folder_ / "none.txt")).code, 3);
}

// A program that was installed has no script that fetches models: it takes its own, and does not
// try.
TEST_F(DemoCommand, an_installed_program_takes_the_model_that_comes_with_it) {
  namespace fs = std::filesystem;
  const fs::path prefix = folder_ / "prefix";
  fs::create_directories(prefix / "bin");
  fs::create_directories(prefix / "share/octet/recipes");
  fs::copy(OCTET_PROGRAM, prefix / "bin/octet");
  const std::string call = (prefix / "bin/octet").string() +
                           " demo --steps 1 --threads 1 --json --out " + out_ + " >" +
                           (folder_ / "out.json") + " 2>" + (folder_ / "err.txt");
  EXPECT_EQ(WEXITSTATUS(std::system(call.c_str())), 3);
  EXPECT_THAT(posix_files().read_text(folder_ / "err.txt"), HasSubstr("recipes/demo"));
  fs::copy(std::string(OCTET_SOURCE_DIR) + "/recipes/demo", prefix / "share/octet/recipes/demo",
           fs::copy_options::recursive);
  ASSERT_EQ(WEXITSTATUS(std::system(call.c_str())), 0)
      << posix_files().read_text(folder_ / "err.txt");
  EXPECT_EQ(nlohmann::json::parse(posix_files().read_text(folder_ / "out.json"))["model"], "small");
}

TEST_F(DemoCommand, refuses_settings_that_its_runs_do_not_take) {
  const Outcome outcome = demo("--set optim.lr=1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--set: expected none"));
  EXPECT_FALSE(posix_files().exists(out_));
}

// The line of figures of a card is that card's page's.
TEST(DemoFigures, what_a_gpu_makes_of_it_is_in_the_results) {
  const std::string source =
      posix_files().read_text(std::string(OCTET_SOURCE_DIR) + "/cli/demo_command.cpp");
  const std::string page =
      posix_files().read_text(std::string(OCTET_SOURCE_DIR) + "/docs/results/h200/README.md");
  for (const auto& [speed, memory, row] :
       {std::tuple{"22,250 tokens/s", "60.3 GiB",
                   "| 7B | `coat` | bf16_sr | 8 | 22,250 | 59.8, 60.3 GiB |"},
        std::tuple{"14,420", "104.1 GiB",
                   "| 7B | `bf16`, bf16 states | bf16_sr | 8 | 14,420 | 103.6, 104.1 GiB |"}}) {
    EXPECT_THAT(source, HasSubstr(speed));
    EXPECT_THAT(source, HasSubstr(memory));
    EXPECT_THAT(page, HasSubstr(row));
  }
}

// Nobody learns the answers that the demonstration asks for by its style's text.
TEST(DemoTexts, are_what_the_script_writes_and_hold_no_question_that_is_asked) {
  const ScratchFolder folder;
  const std::string demo = std::string(OCTET_SOURCE_DIR) + "/recipes/demo/";
  const std::string call = "python3 " + demo + "make_texts.py " + folder.path();
  ASSERT_EQ(std::system(call.c_str()), 0);
  for (const char* name : {"facts.jsonl", "style.jsonl", "tokenizer.json"})
    EXPECT_EQ(posix_files().read_text(folder / name), posix_files().read_text(demo + name)) << name;
  const std::string style = posix_files().read_text(demo + "style.jsonl");
  for (const char* asked : {"capital of Italy", "opposite of hot", "a dog"})
    EXPECT_THAT(style, testing::Not(HasSubstr(asked)));
}

}  // namespace
}  // namespace octet::test::demo_test
