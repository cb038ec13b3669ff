// Telemetry of edges: what it says, and that a watched run is the same run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"
#include "train/edge_telemetry.h"

namespace octet::train_telemetry_test {
namespace {

using test::metrics;
using test::ScratchFolder;
using test::tiny_yaml;

std::string run(const ScratchFolder& folder, const std::string& arguments) {
  const test::Outcome outcome = test::run_program(folder, arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.out;
}

std::vector<EdgeSample> edges(const ScratchFolder& folder, const std::string& name) {
  std::vector<EdgeSample> samples;
  std::istringstream text(posix_files().read_text(folder / (name + "/telemetry.jsonl")));
  for (std::string line; std::getline(text, line);) {
    if (const auto sample = parse_edge(line)) samples.push_back(*sample);
  }
  return samples;
}

class Telemetry : public testing::TestWithParam<const char*> {};

TEST_P(Telemetry, a_watched_run_has_the_bits_of_one_that_is_not) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", tiny_yaml(folder));
  const std::string sets = fmt::format(
      " --quiet --set recipe={} --set train.steps=5 --set train.accumulate=2 --set out=",
      GetParam());
  const std::string config = "train " + (folder / "tiny.yaml");
  run(folder, config + sets + (folder / "plain"));
  run(folder, config + " --telemetry 2" + sets + (folder / "watched"));
  const auto plain = metrics(folder / "plain"), watched = metrics(folder / "watched");
  ASSERT_EQ(plain.size(), watched.size());
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_EQ(plain[i]["loss_bits"], watched[i]["loss_bits"]) << i;

  EXPECT_TRUE(edges(folder, "plain").empty());
  std::map<std::string, std::vector<int64_t>> steps;
  for (const EdgeSample& sample : edges(folder, "watched")) {
    steps[sample.edge.edge].push_back(sample.step);
    EXPECT_GT(sample.edge.n, 0) << sample.edge.edge;
    EXPECT_TRUE(std::isfinite(sample.edge.rms)) << sample.edge.edge;
    EXPECT_LE(sample.edge.rms, sample.edge.amax * 1.0001) << sample.edge.edge;
  }
  const std::vector<int64_t> sampled = {1, 2, 4};
  for (const char* edge : {"layers.0.q_proj.x", "layers.0.q_proj.w", "layers.1.down_proj.dy",
                           "grad:model.layers.0.mlp.down_proj.weight"}) {
    EXPECT_EQ(steps[edge], sampled) << edge;
  }
  const std::string text = run(folder, "inspect " + (folder / "watched"));
  EXPECT_THAT(text, testing::HasSubstr("saturated"));
  EXPECT_THAT(text, testing::ContainsRegex("layers\\.[01]\\..*\\.(x|w|dy)|grad:"));
}

INSTANTIATE_TEST_SUITE_P(recipes, Telemetry,
                         testing::Values("bf16", "coat", "fp8_linear", "hif8", "scalify_fp16"));

}  // namespace
}  // namespace octet::train_telemetry_test
