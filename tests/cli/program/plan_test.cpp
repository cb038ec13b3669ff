// octet plan: what a plan is for, and rows of kernels that it does without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program_run.h"

namespace octet {
namespace {

constexpr const char* kPlan =
    "plan " OCTET_SOURCE_DIR "/recipes/llama-3m.yaml --device cuda --steps --set model.layers=1 ";

TEST(PlanCommand, does_without_rows_that_are_struck) {
  const test::ScratchFolder folder;
  const test::Outcome all = test::run_program(folder, kPlan);
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, testing::HasSubstr(": cudnn"));
  EXPECT_THAT(all.out, testing::Not(testing::HasSubstr(": generic")));
  const test::Outcome some = test::run_program(
      folder, std::string(kPlan) + "--without 'attention cudnn' --without 'rms_norm vectors'");
  ASSERT_EQ(some.code, 0) << some.err;
  EXPECT_THAT(some.out, testing::HasSubstr(": tensor cores"));
  EXPECT_THAT(some.out, testing::HasSubstr(": generic"));
}

TEST(PlanCommand, names_the_rows_of_an_op_that_has_no_such_row) {
  const test::ScratchFolder folder;
  const test::Outcome outcome =
      test::run_program(folder, std::string(kPlan) + "--without 'rms_norm fast'");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              testing::HasSubstr("--without: expected an op and one of its rows (rms_norm codes, "
                                 "rms_norm vectors, rms_norm generic"));
  EXPECT_THAT(outcome.err, testing::HasSubstr("got 'rms_norm fast'"));
}

TEST(PlanCommand, says_for_how_many_ranks_the_plan_is) {
  const test::ScratchFolder folder;
  const auto target = [&](const std::string& ranks) {
    const test::Outcome outcome = test::run_program(
        folder, "plan " OCTET_SOURCE_DIR "/recipes/llama-3m.yaml --json --ranks " + ranks);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("target").get<std::string>();
  };
  EXPECT_THAT(target("2"), testing::EndsWith(", 2 ranks"));
  EXPECT_THAT(target("1"), testing::Not(testing::HasSubstr("rank")));
}

}  // namespace
}  // namespace octet
