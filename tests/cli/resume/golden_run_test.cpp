// tests/fixtures/run-1.0 is a run that format version 1.0 left after step 3 of 6, and is never
// written again: every later version goes on from it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "cli/train/tiny_run.h"

namespace octet {
namespace {

using test::ScratchFolder;

int run_in(const ScratchFolder& folder, const std::string& arguments) {
  const std::string command = "cd '" + folder.path() + "' && '" + OCTET_PROGRAM +
                              "' </dev/null >out.txt 2>err.txt " + arguments;
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void copy_run(const ScratchFolder& folder) {
  std::filesystem::copy(OCTET_SOURCE_DIR "/tests/fixtures/run-1.0", folder.path(),
                        std::filesystem::copy_options::recursive);
}

TEST(GoldenRun, of_version_1_0_is_continued) {
  const ScratchFolder folder;
  copy_run(folder);
  ASSERT_EQ(run_in(folder, "train run/config.yaml --resume --quiet --isa scalar --threads 1"), 0)
      << posix_files().read_text(folder / "err.txt");
  const auto lines = test::metrics(folder / "run");
  ASSERT_EQ(lines.size(), 6u);
  // The losses of the version that began it. Other machines' exponentials differ in the last bits.
  const double losses[] = {5.545953750610352, 5.492081165313721, 5.392588138580322,
                           5.316102981567383, 5.247805595397949, 5.213450908660889};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(lines[i].at("loss").get<double>(), losses[i], 1e-4);
}

TEST(GoldenRun, of_version_1_0_is_evaluated) {
  const ScratchFolder folder;
  copy_run(folder);
  ASSERT_EQ(run_in(folder, "eval --model run --data text.txt --json --quiet"), 0)
      << posix_files().read_text(folder / "err.txt");
  const auto rows = nlohmann::json::parse(posix_files().read_text(folder / "out.txt"));
  EXPECT_NEAR(rows.at(0).at("nll").get<double>(), 5.31151, 1e-3);
}

}  // namespace
}  // namespace octet
