// Runs that go on with other files, other validation data or another bound on gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"

namespace octet::train_resumed_data_test {
namespace {

using test::easy_text;
using test::loss_bits;
using test::metrics;
using test::run_program;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kChanged = "the validation data changed";

class ResumedData : public testing::Test {
 protected:
  void SetUp() override {
    config_ = folder_.put("tiny.yaml", test::tiny_yaml(folder_));
    folder_.put("other/renamed.txt", easy_text(3001));
    folder_.put("val.txt", easy_text(900));
  }
  test::Outcome train(const std::string& flags) {
    return run_program(folder_, "train " + config_ + " --set optim.schedule=constant " + flags);
  }
  std::string path(const char* name) { return folder_ / name; }
  std::string run() { return folder_ / "run"; }

  test::ScratchFolder folder_;
  std::string config_;
};

TEST_F(ResumedData, go_on_where_a_file_of_the_same_contents_has_another_name) {
  ASSERT_EQ(train("--quiet").code, 0);
  const std::vector<std::string> whole = loss_bits(run());
  ASSERT_EQ(train("--quiet --overwrite --set train.steps=3").code, 0);
  const std::string renamed = "--resume --set data.train=[" + path("other/renamed.txt") + "] ";
  const test::Outcome resumed = train(renamed + "--set train.steps=6");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(loss_bits(run()), whole);
  EXPECT_THAT(resumed.err, Not(HasSubstr(kChanged)));
  folder_.put("other/renamed.txt", easy_text(3000) + "?");
  const test::Outcome changed = train(renamed + "--set train.steps=8");
  EXPECT_EQ(changed.code, 3);
  EXPECT_THAT(changed.err, HasSubstr("the training data changed: expected 2701 tokens"));
}

TEST_F(ResumedData, go_on_with_validation_data_that_come_change_and_leave) {
  const std::string patient = "--set train.patience=50 --set train.keep_best=true ";
  ASSERT_EQ(train(patient + "--quiet --set train.steps=8").code, 0);
  const std::vector<std::string> whole = loss_bits(run());
  const auto resume_to = [&](int steps, const std::string& flags) {
    const test::Outcome resumed =
        train(patient + fmt::format("--resume --set train.steps={} {}", steps, flags));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    return resumed.err;
  };
  ASSERT_EQ(train(patient + "--quiet --overwrite --set train.steps=2").code, 0);
  const std::string val = "--set data.val=[" + path("val.txt") + "] ";
  EXPECT_THAT(resume_to(4, val), HasSubstr(kChanged));
  EXPECT_THAT(resume_to(6, val), Not(HasSubstr(kChanged)));
  EXPECT_THAT(resume_to(8, ""), HasSubstr(kChanged));  // those of data.val_fraction again
  EXPECT_EQ(loss_bits(run()), whole);                  // what is trained on stays
  folder_.put("val.txt", "short");
  EXPECT_THAT(resume_to(9, val), HasSubstr("lowest one is looked for anew"));
}

// Of text, samples and conversations alike: without a held-out part from the beginning.
TEST_F(ResumedData, go_on_without_validation_data) {
  const std::string val = "--set data.val=[" + path("val.txt") + "] ";
  const test::Outcome first =
      run_program(folder_, "train " + config_ +
                               " --quiet --set data.val_fraction=0 --set train.steps=3 " + val);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string without = folder_.put("without.yaml", [&] {
    std::string text = posix_files().read_text(config_);
    const std::string fraction = ", val_fraction: 0.1";
    return text.erase(text.find(fraction), fraction.size());
  }());
  const test::Outcome resumed =
      run_program(folder_, "train " + without + " --resume --set train.steps=6");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("the validation data are gone"));
  EXPECT_FALSE(metrics(run()).back().contains("val_loss"));
}

// Nobody wrote what it says of keys that the run does not use.
TEST_F(ResumedData, go_on_by_the_configuration_of_the_run_without_a_word_about_keys) {
  ASSERT_EQ(train("--quiet --set train.steps=3").code, 0);
  const test::Outcome resumed =
      run_program(folder_, "train " + run() + "/config.yaml --quiet --resume");
  EXPECT_EQ(resumed.code, 0);
  EXPECT_THAT(resumed.err, Not(HasSubstr("has no effect")));
}

TEST_F(ResumedData, the_training_loss_is_of_the_last_steps_of_the_run) {
  ASSERT_EQ(train("--quiet --set train.steps=25").code, 0);
  for (const char* steps : {"28", "28"}) {  // of three more, and of a run that is finished
    const test::Outcome resumed =
        train(std::string("--quiet --json --resume --set train.steps=") + steps);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    const auto lines = metrics(run());
    double sum = 0;
    for (size_t i = lines.size() - 20; i < lines.size(); ++i)
      sum += lines[i].at("loss").get<double>();
    const auto row = nlohmann::json::parse(resumed.out).at(0);
    EXPECT_NEAR(row.at("train_loss").get<double>(), sum / 20, 5.1e-5);
  }
}

TEST_F(ResumedData, a_step_was_clipped_by_the_bound_that_it_had) {
  const std::string set = "--quiet --set train.telemetry_every=8 --set optim.clip=";
  ASSERT_EQ(train(set + "1e-9 --set train.steps=6").code, 0);
  ASSERT_EQ(train(set + "1e9 --resume --set train.steps=8").code, 0);
  const auto lines = metrics(run());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at("clipped"), i < 6 ? 1 : 0) << i;
  std::istringstream telemetry(posix_files().read_text(run() + "/telemetry.jsonl"));
  nlohmann::json last;
  for (std::string line; std::getline(telemetry, line);) {
    if (line.find("\"interval\"") != line.npos) last = nlohmann::json::parse(line);
  }
  EXPECT_EQ(last.at("step"), 8);
  EXPECT_EQ(last.at("clip_share"), 0.75);
}

}  // namespace
}  // namespace octet::train_resumed_data_test
