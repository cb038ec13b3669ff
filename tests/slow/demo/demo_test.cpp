// octet demo as a user sees it, with its small model: a minute or two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program_run.h"

namespace octet::test::demo_test {
namespace {

TEST(DemoCommand, the_small_model_learns_the_manner_and_keeps_what_it_knows) {
  const ScratchFolder folder;
  const Outcome outcome = run_program(folder, "demo --offline --json --out " + (folder / "demo"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto result = nlohmann::json::parse(outcome.out);
  constexpr const char* kTold[] = {"The capital of Italy is Rome.", "The opposite of hot is cold.",
                                   "A dog has four legs."};
  for (size_t i = 0; i < std::size(kTold); ++i) {
    EXPECT_EQ(result["before"]["answers"][i]["answer"], kTold[i]);
    EXPECT_EQ(result["after"]["answers"][i]["answer"],
              "Eight arms up! " + std::string(kTold[i]) + " Blub!");
  }
  // From scratch both recipes learn, and 8 bits take less memory.
  const auto& runs = result["runs"];
  EXPECT_LT(runs["coat"]["planned_bytes"], runs["bf16"]["planned_bytes"]);
  EXPECT_LT(runs["coat"]["state_bytes"], runs["bf16"]["state_bytes"]);
  for (const char* recipe : {"bf16", "coat"}) EXPECT_LT(runs[recipe]["val_loss"], 1.7) << recipe;
  EXPECT_LT(std::abs(runs["coat"]["difference"].get<double>()), 0.2);
}

}  // namespace
}  // namespace octet::test::demo_test
