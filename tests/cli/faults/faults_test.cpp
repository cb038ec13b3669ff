// Bad input of all kinds meets the program: one exact line on standard error, and the exit code.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "cli/faults/fault_case.h"
#include "cli/train/tiny_run.h"

namespace octet::faults_test {
namespace {

using test::FaultCase;
using test::ScratchFolder;

// Runs in the folder, so that paths in messages are short and the same everywhere.
int run_in(const ScratchFolder& folder, const std::string& arguments) {
  const std::string command = "cd '" + folder.path() + "' && timeout 60 '" + OCTET_PROGRAM +
                              "' </dev/null >out.txt 2>err.txt " + arguments;
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Faults : public testing::TestWithParam<FaultCase> {};

TEST_P(Faults, end_with_their_code_and_their_line) {
  const FaultCase& fault = GetParam();
  const ScratchFolder folder;
  folder.put("text.txt", test::easy_text(3001));
  folder.put("tiny.yaml",
             "model: {kind: llama, hidden: 32, layers: 2, heads: 4, ffn: 40, vocab: 256, seq: 24}\n"
             "recipe: coat\n"
             "optim: {warmup: 2}\n"
             "data: {train: [text.txt]}\n"
             "train: {steps: 4, batch: 2, eval_every: 0, save_every: 2}\n"
             "out: run\n");
  if (fault.with_run) {
    ASSERT_EQ(run_in(folder, "train tiny.yaml --quiet"), 0)
        << posix_files().read_text(folder / "err.txt");
  }
  for (const auto& file : fault.files) {
    test::make_file(folder, file.first.as<std::string>(), file.second);
  }
  for (const YAML::Node& edit : fault.edits) test::apply_edit(folder, edit);
  EXPECT_EQ(run_in(folder, fault.command), fault.code);
  const std::string err = posix_files().read_text(folder / "err.txt");
  EXPECT_TRUE(test::fits(err, fault.err)) << "expected " << fault.err << "got      " << err;
}

INSTANTIATE_TEST_SUITE_P(all, Faults,
                         testing::ValuesIn(test::load_faults(OCTET_SOURCE_DIR "/tests/faults")),
                         [](const auto& info) { return info.param.topic + "_" + info.param.name; });

}  // namespace
}  // namespace octet::faults_test
