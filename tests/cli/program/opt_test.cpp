// octet opt --target: a lowered graph in, and what the back end has no kernel for decomposed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/program_run.h"
#include "data/npz.h"

namespace octet::program_opt_test {
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

template <typename T>
NumpyArray array(const std::string& descr, const std::vector<int64_t>& shape,
                 const std::vector<T>& values) {
  return {descr, shape, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}};
}

// loss = sum(x w^T) over x [2, 3] and w [4, 3].
constexpr const char* kProduct = R"(graph "g" phase logical
%0 = input parameter "w" : real[4,3]
%1 = input batch "x" : real[2,3]
%2 = gemm(%1, %0) {trans_b = true, role = forward} : real[2,4] @ layer 0, forward, "proj"
%3 = reduce_sum(%2) {axes = [0,1]} : real[]
output "y" %2
output "loss" %3
)";
const std::vector<float> kX = {1, 2, 3, 4, 5, 6}, kW = {1, 0, 0, 0, 1, 0, 0, 0, 1, 0.5f, 0.25f, 2};

TEST(OptRun, values_are_the_graph_s_whatever_the_passes) {
  const test::ScratchFolder folder;
  const std::string graph = folder.put("g.ir", kProduct), out = folder / "out.npz";
  write_npz(posix_files(), folder / "in.npz",
            {{"x", array("<f4", {2, 3}, kX)},
             {"w", array("<f8", {4, 3}, std::vector<double>(kW.begin(), kW.end()))}});
  const std::string run = "opt " + graph + " --run " + folder / "in.npz" + " --out " + out;
  const std::vector<float> y = {1, 2, 3, 7, 4, 5, 6, 15.25f};  // exact in all of these types
  for (const char* passes :
       {"", " --passes fp32", " --passes autodiff,simplify,fp32,fuse", " --passes bf16",
        " --passes autodiff,scalify_fp16", " --passes autodiff,simplify,scalify_fp32"}) {
    const test::Outcome ran = test::run_program(folder, run + passes);
    ASSERT_EQ(ran.code, 0) << passes << ran.err;
    NumpyArrays results = read_npz(posix_files(), out);
    const bool is_fp16 = results["y"].descr == "<f2";
    EXPECT_EQ(is_fp16, std::string(passes).ends_with("fp16")) << passes;
    EXPECT_EQ(results["loss"].values<float>(), std::vector<float>{43.25f}) << passes;
    if (!is_fp16) {
      EXPECT_EQ(results["y"].values<float>(), y) << passes;
    }
    const bool has_gradients = std::string(passes).find("autodiff") != std::string::npos;
    ASSERT_EQ(results.contains("grad:w"), has_gradients) << passes;
    if (has_gradients) {
      const std::vector<float> sums = {5, 7, 9, 5, 7, 9, 5, 7, 9, 5, 7, 9};  // of x's columns
      EXPECT_EQ(results["grad:w"].values<float>(), sums) << passes;
    }
  }
  const auto table = nlohmann::json::parse(test::run_program(folder, run + " --json").out);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0]["output"], "y");
  EXPECT_EQ(table[0]["type"], "f32[2,4]");
  EXPECT_EQ(table[0]["mean"], 43.25 / 8);
  EXPECT_EQ(table[0]["min"], 1);
  EXPECT_EQ(table[0]["max"], 15.25);
}

TEST(OptRun, tells_all_that_does_not_fit) {
  const test::ScratchFolder folder;
  const std::string graph = folder.put("g.ir", kProduct);
  const NumpyArray x = array("<f4", {2, 3}, kX), w = array("<f4", {4, 3}, kW);
  const struct {
    NumpyArrays arrays;
    std::string more, error;
  } cases[] = {
      {{}, "", "expected an array 'w' of f32[4,3], got none; expected an array 'x' of f32[2,3]"},
      {{{"x", w}, {"w", w}}, "", "'x': expected shape [2,3] for f32[2,3], got [4,3]"},
      {{{"x", x}, {"w", w}, {"b", w}}, "", "'b' is no input of the graph"},
      {{{"x", x}, {"w", array<int32_t>("<i4", {4, 3}, std::vector<int32_t>(12))}},
       "",
       "'w': expected type one of <f2 <f4 <f8 for f32[4,3], got <i4"},
      {{{"x", x}, {"w", w}}, " --ranks 2", "--ranks: expected it with --passes"},
      {{{"x", x}, {"w", w}}, " --target cpu", "--target excludes --run"},
  };
  for (const auto& [arrays, more, error] : cases) {
    write_npz(posix_files(), folder / "in.npz", arrays);
    const test::Outcome ran =
        test::run_program(folder, "opt " + graph + " --run " + folder / "in.npz" + more);
    EXPECT_EQ(ran.code, 2) << ran.out;
    EXPECT_THAT(ran.err, testing::HasSubstr(error));
  }
  EXPECT_EQ(test::run_program(folder, "opt " + graph + " --out o.npz").code, 2);
}

TEST(OptRun, integers_and_16_bit_types_are_rounded_once_and_checked) {
  const test::ScratchFolder folder;
  const std::string graph = folder.put("g.ir", R"(graph "g" phase typed
%0 = input batch "ids" : i32[3]
%1 = input batch "h" : fp16[2]
%2 = input batch "b" : bf16[3]
output "ids" %0
output "h" %1
output "b" %2
)");
  const std::string run =
      "opt " + graph + " --run " + folder / "in.npz" + " --out " + folder / "out.npz";
  // By f32, 1 + 2^-8 + 2^-40 would be half way between BF16's numbers, and go down to the even one.
  NumpyArrays inputs = {
      {"ids", array<int64_t>("<i8", {3}, {-7, 0, 2147483647})},
      {"h", array<double>("<f8", {2}, {65504, 65520})},
      {"b", array<double>("<f8", {3}, {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, INFINITY})}};
  write_npz(posix_files(), folder / "in.npz", inputs);
  const test::Outcome ran = test::run_program(folder, run);
  ASSERT_EQ(ran.code, 0) << ran.err;
  const NumpyArrays results = read_npz(posix_files(), folder / "out.npz");
  EXPECT_EQ(results.at("ids").values<int32_t>(), (std::vector<int32_t>{-7, 0, 2147483647}));
  EXPECT_EQ(results.at("h").values<uint16_t>(), (std::vector<uint16_t>{0x7bff, 0x7c00}));
  EXPECT_EQ(results.at("b").values<float>(), (std::vector<float>{1 + 0x1p-7f, 1, INFINITY}));
  inputs["ids"] = array<int64_t>("<i8", {3}, {0, int64_t{1} << 31, 0});
  write_npz(posix_files(), folder / "in.npz", inputs);
  const test::Outcome refused = test::run_program(folder, run);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              testing::HasSubstr("'ids': expected numbers from -2147483648 to 2147483647, got "
                                 "2147483648"));
}

}  // namespace
}  // namespace octet::program_opt_test
