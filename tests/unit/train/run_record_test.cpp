#include "train/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "config/load.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_run_record_test {
namespace {

using test::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;

RunConfig config_in(const ScratchFolder& folder) {
  return parse_config("out: " + folder.path(), "a.yaml").config;
}

// Lines of the steps from first to last.
void write_metrics(const ScratchFolder& folder, int64_t first, int64_t last) {
  std::ofstream file(folder / "metrics.jsonl", std::ios::app);
  StepReport report;
  report.loss = 1.5f;
  for (report.step = first; report.step <= last; ++report.step)
    file << metrics_json(report) << "\n";
}

std::vector<std::string> warnings_of(const ScratchFolder& folder, int64_t last_step) {
  std::vector<std::string> warnings;
  const Log log([&](LogLevel level, const std::string& message) {
    if (level == LogLevel::warning) warnings.push_back(message);
  });
  const RunRecord record(posix_files(), config_in(folder), last_step, log);
  return warnings;
}

TEST(RunRecord, lines_that_are_missing_are_told) {
  const ScratchFolder folder;
  EXPECT_THAT(warnings_of(folder, 0), ElementsAre());
  write_metrics(folder, 1, 9);
  EXPECT_THAT(warnings_of(folder, 9), ElementsAre());
  EXPECT_THAT(warnings_of(folder, 4), ElementsAre());  // the rest is computed again
  EXPECT_THAT(warnings_of(folder, 6),
              ElementsAre(HasSubstr("metrics.jsonl': expected a line for each of 6 steps, got 4")));
}

// A run of a million steps is resumed in the memory of a short one.
TEST(RunRecord, a_long_file_is_read_in_bounded_memory) {
  const ScratchFolder folder;
  constexpr int64_t kSteps = 200'000;
  write_metrics(folder, 1, kSteps);
  ASSERT_GT(posix_files().size(folder / "metrics.jsonl"), 30'000'000u);
  rusage before{}, after{};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &before), 0);
  EXPECT_THAT(warnings_of(folder, kSteps), ElementsAre());
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &after), 0);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss,
            15 * 1024);  // KiB, half of the file; sanitizers keep what is freed
}

}  // namespace
}  // namespace octet::train_run_record_test
