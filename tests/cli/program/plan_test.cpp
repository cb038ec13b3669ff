// octet plan: what a plan is for, and rows of kernels that it does without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program_run.h"

namespace octet::program_plan_test {
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

TEST(PlanCommand, tells_once_of_a_fusion_that_did_not_fire_in_layers_of_one_kind) {
  const test::ScratchFolder folder;
  const test::Outcome plan = test::run_program(
      folder, "plan " OCTET_SOURCE_DIR
              "/recipes/llama-3m.yaml --set recipe='{base: hif8, scaling: periodic}'");
  ASSERT_EQ(plan.code, 0) << plan.err;
  const std::string told = plan.out.substr(plan.out.find("fusions that did not fire:\n"));
  EXPECT_EQ(std::ranges::count(told, '\n'), 4) << told;  // two norms and the activation of a layer
  EXPECT_THAT(told, testing::HasSubstr("@ layer 0, "));
  EXPECT_THAT(told, testing::HasSubstr(" alone; 3 more like it\n"));
}

TEST(PlanCommand, a_name_that_rows_begin_with_strikes_all_of_them) {
  const test::ScratchFolder folder;
  const std::string plan = std::string(kPlan) + "--set recipe.base=fp8_linear ";
  const test::Outcome all = test::run_program(folder, plan);
  EXPECT_THAT(all.out, testing::HasSubstr(": fp8 fast "));
  EXPECT_THAT(all.out, testing::HasSubstr(": fp8 promoted "));
  const test::Outcome some = test::run_program(folder, plan + "--without 'gemm fp8 fast'");
  EXPECT_THAT(some.out, testing::Not(testing::HasSubstr(": fp8 fast ")));
  EXPECT_THAT(some.out, testing::HasSubstr(": fp8 promoted "));
  const test::Outcome none = test::run_program(folder, plan + "--without 'gemm fp8'");
  ASSERT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.out, testing::Not(testing::HasSubstr(": fp8")));
  EXPECT_THAT(none.out, testing::HasSubstr(": decoded"));
}

// Rows of the linear's GEMMs, in order: what stands between ": " and the results.
std::vector<std::string> rows_of(const std::string& plan, const std::string& linear) {
  std::vector<std::string> rows;
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    const size_t gemm = line.find("| gemm ");
    if (gemm == std::string::npos || line.find(" " + linear + " ") == std::string::npos) continue;
    const size_t row = line.find(": ", gemm) + 2;
    rows.push_back(line.substr(row, line.find(" | ", row) - row));
  }
  return rows;
}

TEST(PlanCommand, sums_follow_the_recipe_the_run_and_overrides) {
  const test::ScratchFolder folder;
  const auto plan = [&](const std::string& sets) {
    const test::Outcome outcome = test::run_program(folder, kPlan + sets);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  using Rows = std::vector<std::string>;
  const Rows forward = {"fp8 fast", "fp8 promoted", "fp8 promoted"};
  const Rows all = {"fp8 fast", "fp8 fast", "fp8 fast"};
  const Rows none = {"fp8 promoted", "fp8 promoted", "fp8 promoted"};
  EXPECT_EQ(rows_of(plan("--set recipe=coat"), "o_proj"), forward);
  Rows fast = rows_of(plan("--set recipe=coat-fast"), "o_proj");
  ASSERT_EQ(fast.size(), 3u);
  EXPECT_EQ(std::ranges::count(fast, "fp8 fast"), 2);
  EXPECT_EQ(rows_of(plan("--set 'recipe={base: coat-fast, accumulation: fast}'"), "o_proj"), all);
  EXPECT_EQ(rows_of(plan("--set 'recipe={base: coat-fast, accumulation: promoted}'"), "o_proj"),
            none);
  const std::string lines = plan(
      "--set 'recipe={base: coat, override: {\"*.o_proj\": {sums: fast}, "
      "\"*.down_proj\": {sums: promoted}}}'");
  EXPECT_EQ(rows_of(lines, "o_proj"), all);
  EXPECT_EQ(rows_of(lines, "down_proj"), none);
  EXPECT_EQ(rows_of(lines, "q_proj"), forward);
}

// With the embedding's weight, too. Without its name no pattern means it.
TEST(PlanCommand, a_texts_head_is_quantized_where_it_is_named) {
  const test::ScratchFolder folder;
  using Rows = std::vector<std::string>;
  const auto plan = [&](const std::string& sets) {
    return test::run_program(folder, kPlan + sets);
  };
  const std::string named = "--set 'recipe={base: fp8_linear, override: {lm_head: fp8_linear}}' ";
  const Rows fp8 = {"fp8 fast", "fp8 promoted", "fp8 promoted"};
  EXPECT_EQ(rows_of(plan(named).out, "lm_head"), fp8);
  EXPECT_EQ(rows_of(plan(named + "--set model.tied=true").out, "lm_head"), fp8);
  EXPECT_EQ(
      rows_of(plan("--set 'recipe={base: bf16, override: {\"*\": fp8_linear}}'").out, "lm_head"),
      Rows(3, "library"));
  const std::string file = OCTET_SOURCE_DIR "/recipes/llama-3m.yaml ";
  const test::Outcome policy = test::run_program(folder, "plan " + file + named + "--policy");
  EXPECT_THAT(policy.out, testing::HasSubstr("lm_head                          x e4m3"));
  const test::Outcome scalify =
      plan("--set 'recipe={base: scalify_fp8, override: {lm_head: {dy: e5m2}}}'");
  EXPECT_EQ(rows_of(scalify.out, "lm_head"), fp8) << scalify.err;
  EXPECT_THAT(plan(named + "--set train.head_chunk=65536").err,
              testing::HasSubstr("train.head_chunk: expected 0 where recipe.override quantizes "
                                 "lm_head"));
  EXPECT_EQ(plan("--set 'recipe={base: fp8_linear, override: {lm_head: bf16}}' "
                 "--set train.head_chunk=65536")
                .code,
            0);
  EXPECT_THAT(plan("--set 'recipe={base: fp8_linear, override: {head: bf16}}'").err,
              testing::HasSubstr("or by its name lm_head; got none"));
}

// No fast row takes these groups.
TEST(PlanCommand, moments_in_groups_of_64_are_updated_by_the_generic_row) {
  const test::ScratchFolder folder;
  const auto plan = [&](const std::string& group) {
    return test::run_program(folder,
                             std::string(kPlan) + "--set recipe=coat --set optim.group=" + group)
        .out;
  };
  EXPECT_THAT(plan("64"), testing::HasSubstr("e4m3:run64"));
  EXPECT_THAT(plan("64"), testing::ContainsRegex("adamw_step [^\n]*e4m3:run64[^\n]*: generic"));
  EXPECT_THAT(plan("128"), testing::ContainsRegex("adamw_step [^\n]*e4m3:run128[^\n]*: expanded"));
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
}  // namespace octet::program_plan_test
