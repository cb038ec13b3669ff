// octet opt --target: a lowered graph in, and what the back end has no kernel for decomposed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program_run.h"

namespace octet {
namespace {

// The exit code; standard output and error go to out.txt and err.txt.
int run(const test::ScratchFolder& folder, const std::string& arguments) {
  return test::run_program(folder, arguments).code;
}
std::string output(const test::ScratchFolder& folder) {
  return posix_files().read_text(folder / "out.txt");
}

// Heads wider than the GPU's attention takes.
std::string wide_heads(const test::ScratchFolder& folder) {
  EXPECT_EQ(run(folder, std::string("plan ") + OCTET_SOURCE_DIR
                            "/recipes/llama-25m.yaml --graph --set model.layers=1 --set "
                            "model.heads=1 --set model.kv_heads=1 "
                            "--set model.seq=32 --set train.batch=1"),
            0)
      << posix_files().read_text(folder / "err.txt");
  return folder.put("wide.ir", output(folder));
}

TEST(OptCommand, target_decomposes_what_has_no_kernel_there) {
  const test::ScratchFolder folder;
  const std::string graph = wide_heads(folder);
  const std::string text = posix_files().read_text(graph);
  ASSERT_NE(text.find("= attention("), std::string::npos);
  ASSERT_EQ(run(folder, "opt " + graph + " --target cpu"), 0);
  EXPECT_EQ(output(folder), text);
  ASSERT_EQ(run(folder, "opt " + graph + " --target cuda"), 0);
  EXPECT_EQ(output(folder).find("= attention("), std::string::npos);
  EXPECT_NE(output(folder).find("= dot("), std::string::npos);
  EXPECT_NE(output(folder).find("= gated_act("), std::string::npos);  // which it has
}

TEST(OptCommand, shard_is_named_by_words_in_help_and_errors) {
  const test::ScratchFolder folder;
  ASSERT_EQ(run(folder, "opt --help"), 0);
  EXPECT_THAT(output(folder), testing::HasSubstr("{none,optimizer,gradients,parameters}"));
  EXPECT_EQ(run(folder, "opt none.ir --shard half"), 2);
  const std::string error = posix_files().read_text(folder / "err.txt");
  EXPECT_THAT(error, testing::HasSubstr(
                         "expected one of none, optimizer, gradients, parameters, got half"));
}

TEST(OptCommand, target_wants_a_lowered_graph) {
  const test::ScratchFolder folder;
  const std::string graph = folder.put("typed.ir",
                                       "graph \"g\" phase typed\n"
                                       "%0 = input batch \"x\" : f32[4]\n"
                                       "%1 = neg(%0) : f32[4]\n"
                                       "output \"y\" %1\n");
  EXPECT_EQ(run(folder, "opt " + graph + " --target cuda"), 2);
  EXPECT_NE(posix_files().read_text(folder / "err.txt").find("phase lowered"), std::string::npos);
  EXPECT_EQ(run(folder, "opt " + graph + " --passes fuse --target cuda"), 0);
}

}  // namespace
}  // namespace octet
