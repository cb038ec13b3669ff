// Which kernels the GEMMs of generation have on a GPU, and --sums (infer/generation_sums.h): by
// plans, without a device.
#include "infer/generation_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "property/cuda_plans/small_llama.h"
#include "unit/base/error_of.h"

namespace octet::cuda_plans_generation_sums_test {
namespace {

using testing::HasSubstr;

struct Asked {
  std::string name;
  GenerationSums sums;
  std::string recipe;
  FrozenFormat weights;
  int64_t n_texts;
  std::set<std::string> of_tokens, of_prompts;  // the ways of their GEMMs' rows; or none where
  std::string refusal = {};                     // this is part of the error
};

constexpr auto kAuto = GenerationSums::by_rows, kFew = GenerationSums::few,
               kDecoded = GenerationSums::decoded, kFp8 = GenerationSums::fp8;
constexpr auto kE4m3 = FrozenFormat::e4m3, kBlocks = FrozenFormat::e4m3_blocks,
               kHif8 = FrozenFormat::hif8, kBf16 = FrozenFormat::as_computed;

// The head is a GEMM in 16 bits: few rows or the library's.
const Asked kAsked[] = {
    {"one_text", kAuto, "fp8_linear", kE4m3, 1, {"few"}, {"fp8"}},
    {"three_texts", kAuto, "fp8_linear", kE4m3, 3, {"decoded", "library"}, {"fp8"}},
    {"sixteen_texts", kAuto, "fp8_linear", kE4m3, 16, {"fp8", "library"}, {"fp8"}},
    {"few_of_one", kFew, "fp8_linear", kE4m3, 1, {"few"}, {"fp8"}},
    {"few_of_two", kFew, "bf16", kE4m3, 2, {"few"}, {"library", "weight only"}},
    {"few_in_16_bits", kFew, "bf16", kBf16, 2, {"few"}, {"library"}},
    {"few_of_blocks", kFew, "bf16", kBlocks, 1, {"few"}, {"library"}},
    {"decoded_of_one", kDecoded, "fp8_linear", kE4m3, 1, {"decoded", "library"}, {"decoded"}},
    {"decoded_of_16", kDecoded, "fp8_linear", kE4m3, 16, {"decoded", "library"}, {"decoded"}},
    {"decoded_blocks", kDecoded, "fp8_block", kBlocks, 1, {"decoded", "library"}, {"decoded"}},
    {"decoded_weights", kDecoded, "bf16", kE4m3, 1, {"library"}, {"library"}},
    {"decoded_hif8", kDecoded, "hif8", kHif8, 2, {"decoded", "library"}, {"decoded"}},
    {"fp8_of_one", kFp8, "fp8_linear", kE4m3, 1, {"fp8", "library"}, {"fp8"}},
    {"fp8_of_17", kFp8, "fp8_linear", kE4m3, 17, {"fp8", "library"}, {"fp8"}},
    {"few_of_three",
     kFew,
     "bf16",
     kE4m3,
     3,
     {},
     {},
     "--sums few: expected at most 2 texts at a time (--batch), got 3"},
    {"few_hif8",
     kFew,
     "hif8",
     kHif8,
     1,
     {},
     {},
     "--sums few: expected formats that a kernel of few rows reads (bf16, fp16 or e4m3 with one "
     "scale), got 'gemm hif8"},
    {"decoded_in_16_bits",
     kDecoded,
     "bf16",
     kBf16,
     4,
     {},
     {},
     "--sums decoded: expected GEMMs or weights in eight bits (--recipe, --weights), got bf16"},
    {"fp8_in_16_bits",
     kFp8,
     "bf16",
     kE4m3,
     16,
     {},
     {},
     "--sums fp8: expected GEMMs with both operands in FP8 (--recipe fp8_linear --weights e4m3), "
     "got bf16"},
    {"fp8_hif8", kFp8, "hif8", kHif8, 16, {}, {}, "--sums fp8: expected GEMMs with both operands"},
    {"in_32_bits",
     kDecoded,
     "fp32",
     kBf16,
     1,
     {},
     {},
     "--sums decoded: expected a recipe that computes in 16 bits (--recipe), got fp32"},
};

class GenerationSumsOf : public testing::TestWithParam<Asked> {};

TEST_P(GenerationSumsOf, are_those_that_were_asked_for) {
  const Asked& asked = GetParam();
  Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  const ModelSpec spec = test::small_llama();
  const Precision precision(asked.recipe, {}, asked.weights);
  const GeneratingModel model{spec, precision};
  TextModelOptions options{.n_entries = asked.n_texts, .capacity = 64, .picks = true};
  const auto choose = [&] { choose_sums(asked.sums, model, options, *gpu.catalogue); };
  if (!asked.refusal.empty()) {
    EXPECT_THAT(test::error_of(choose), HasSubstr(asked.refusal));
    return;
  }
  choose();
  std::set<std::string> of_tokens, of_prompts;
  for (const GenerationGemms& gemms : generation_gemms(model, options, *gpu.catalogue)) {
    const bool is_fill = gemms.function.name == function::fill;
    (is_fill ? of_prompts : of_tokens).emplace(sums_of_row(gemms.row));
    EXPECT_GT(gemms.count, 0);
    EXPECT_TRUE(asked.sums != GenerationSums::fp8 || gemms.n_rows() % 16 == 0) << gemms.n_rows();
  }
  EXPECT_EQ(of_tokens, asked.of_tokens);
  EXPECT_EQ(of_prompts, asked.of_prompts);
}

INSTANTIATE_TEST_SUITE_P(ways, GenerationSumsOf, testing::ValuesIn(kAsked),
                         [](const auto& info) { return info.param.name; });

TEST(GenerationSums, are_of_a_gpu) {
  Backend own = cpu::make_backend(1, cpu::detect_isa());
  const ModelSpec spec = test::small_llama();
  const Precision precision("bf16");
  TextModelOptions options{.capacity = 16};
  EXPECT_THAT(test::error_of([&] {
                choose_sums(GenerationSums::few, {spec, precision}, options, *own.catalogue);
              }),
              HasSubstr("--sums few: expected a GPU (--device cuda), whose sums depend on the "
                        "number of rows, got cpu"));
  choose_sums(GenerationSums::by_rows, {spec, precision}, options, *own.catalogue);
  EXPECT_EQ(options.n_entries, 1);
}

}  // namespace
}  // namespace octet::cuda_plans_generation_sums_test
