// Runs of every recipe, and of what a run may choose over it, beside the CPU's: the first losses
// and norms of gradients are the same but for the order of sums.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/training/program_run.h"

namespace octet::training_recipes_test {
namespace {

struct RecipeRun {
  const char* name;
  const char* sets;  // KEY=VALUE, one after another
  double tolerance;
};

constexpr double kWide = 1e-3, kNarrow = 2e-2;

const RecipeRun kRuns[] = {
    {"fp32", "recipe.base=fp32", 1e-4},
    {"bf16", "recipe.base=bf16", 1e-2},
    {"bf16_head_chunk", "recipe.base=bf16 train.head_chunk=65536", 1e-2},
    {"bf16_head_chunk_accumulated",
     "recipe.base=bf16 train.head_chunk=65536 train.accumulate=2 train.batch=2", 1e-2},
    {"fp16_global", "recipe.base=fp16 recipe.loss_scaling=global", kWide * 10},
    {"fp16_adaptive", "recipe.base=fp16 recipe.loss_scaling=adaptive recipe.loss_scale=65536",
     kWide * 10},
    {"fp16_overflow", "recipe.base=fp16 recipe.loss_scaling=adaptive", kWide * 10},
    {"fp16_head_chunk", "recipe.base=fp16 recipe.loss_scaling=global train.head_chunk=65536",
     kWide * 10},
    {"fp8_linear", "recipe.base=fp8_linear", kNarrow},
    {"fp8_linear_fp16", "recipe.base=fp8_linear recipe.compute=fp16 recipe.loss_scaling=global",
     kNarrow},
    {"coat", "recipe.base=coat", kNarrow},
    {"coat_fast", "recipe.base=coat-fast", kNarrow},
    {"coat_static", "recipe.base=coat-static", kNarrow},
    {"coat_e5m2", "recipe.base=coat optim.state_m=e5m2+x optim.state_v=e5m2+x", kNarrow},
    {"hif8", "recipe.base=hif8", kNarrow},
    {"hif8_hybrid", "recipe.base=hif8 recipe.gradient_rounding=hr", kNarrow},
    {"hif8_stochastic", "recipe.base=hif8 recipe.gradient_rounding=sr", kNarrow},
    {"hif8_fp16_periodic",
     "recipe.base=hif8 recipe.compute=fp16 recipe.scaling=periodic recipe.loss_scaling=adaptive "
     "recipe.loss_scale=65536 recipe.activations=hif8",
     kNarrow},
    {"hif8_no_scales", "recipe.base=hif8 recipe.scaling=none recipe.loss_scaling=global", kNarrow},
    {"scalify_fp16", "recipe.base=scalify_fp16", kWide * 10},
    {"scalify_fp8", "recipe.base=scalify_fp8", kNarrow},
    {"coat_static_codes", "recipe.base=coat-static recipe.activation_scale=tensor", kNarrow},
    {"fp8_block", "recipe.base=fp8_block", kNarrow},
    {"fp8_block_fp16", "recipe.base=fp8_block recipe.compute=fp16 recipe.loss_scaling=global",
     kNarrow},
    {"fp8_block_power", "'recipe={base: fp8_block, block_scale: power}'", kNarrow},
    {"coat_block", "recipe.base=coat-block", kNarrow},
    {"fp8_row", "recipe.base=fp8_row", kNarrow},
    {"fp8_block_gpt2", "recipe.base=fp8_block model.kind=gpt2", kNarrow},
    {"mxfp8", "recipe.base=mxfp8", kNarrow},
    {"mxfp8_floor", "recipe.base=mxfp8 recipe.mx_scale=floor", kNarrow},
    {"mixed_blocks",
     "recipe.base=coat 'recipe.override={\"*\": {x: hif8/1x64, w: hif8/32x32, dy: e5m2/1x16}}'",
     kNarrow},
    {"telemetry", "recipe.base=coat train.telemetry=2", kNarrow},
};

class RecipeRuns : public testing::TestWithParam<RecipeRun> {};

std::string set_options(const std::string& sets) {
  std::string options = " --set train.steps=3 --set train.deterministic=true";
  size_t at = 0;
  while (at < sets.size()) {
    const bool is_quoted = sets[at] == '\'';
    size_t end = sets.find(is_quoted ? "'" : " ", at + 1);
    if (end == std::string::npos) end = sets.size();
    if (is_quoted) ++end;
    options += " --set " + sets.substr(at, end - at);
    at = end + 1;
  }
  return options;
}

TEST_P(RecipeRuns, have_the_losses_of_the_cpu) {
  OCTET_GPU_PROGRAM_OR_SKIP();
  const test::ScratchFolder folder;
  const std::string options = set_options(GetParam().sets);
  test::train(folder, "gpu", options);
  test::train(folder, "cpu", options, "cpu");
  if (HasFatalFailure()) return;
  const auto got = test::metrics(folder / "gpu"), want = test::metrics(folder / "cpu");
  ASSERT_EQ(got.size(), 3u);
  ASSERT_EQ(want.size(), 3u);
  for (size_t i = 0; i < want.size(); ++i) {
    for (const char* key : {"loss", "grad_norm"}) {
      ASSERT_EQ(got[i].at(key).is_null(), want[i].at(key).is_null()) << key << " of step " << i;
      if (want[i].at(key).is_null()) continue;  // it overflowed
      const double expected = want[i].at(key).get<double>();
      const double tolerance = GetParam().tolerance * (key[0] == 'g' ? 5 : 1);
      EXPECT_NEAR(got[i].at(key).get<double>(), expected, tolerance * expected)
          << key << " of step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(runs, RecipeRuns, testing::ValuesIn(kRuns),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace octet::training_recipes_test
