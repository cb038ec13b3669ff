// The bytes that shipped runs plan, by arena, on a GPU and on a CPU's reference kernels; neither
// needs a machine of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "config/load.h"
#include "golden/golden_text.h"
#include "infer/model_spec.h"
#include "train/run_setup.h"

namespace octet::frozen_planned_test {
namespace {

struct Case {
  std::string file;
  std::vector<std::string> sets;
};

std::string planned(const Case& c, const std::string& where, const Catalogue& catalogue) {
  const RunConfig config =
      load_config(OCTET_SOURCE_DIR "/recipes/" + c.file + ".yaml", c.sets).config;
  Program program(program_options(config, model_from_config(posix_files(), config)), catalogue);
  program.planned_bytes();
  int64_t bytes[kArenaCount];
  program.arena_bytes(bytes);
  std::string text = fmt::format("{} {}", where, c.file);
  for (const std::string& set : c.sets) text += " " + set;
  return text + fmt::format(": persistent {} step {} transient {}\n", bytes[0], bytes[1], bytes[2]);
}

TEST(PlannedBytes, are_the_recorded_bytes) {
  if (!std::filesystem::is_directory(OCTET_SOURCE_DIR "/recipes")) GTEST_SKIP() << "no recipes";
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  const Backend strict = cuda::make_plan_backend({.deterministic = true, .n_threads = 1});
  const Backend cpu = cpu::make_backend(1, cpu::Isa::scalar);
  std::string text;
  for (const char* recipe : {"fp32", "fp16", "bf16", "fp8_linear", "coat", "coat-fast", "hif8"}) {
    const std::string base = std::string("recipe.base=") + recipe;
    text += planned({"llama-124m", {base}}, "cuda", *gpu.catalogue);
    text += planned({"gpt2-124m", {base, "model.layers=4"}}, "cuda", *gpu.catalogue);
    text += planned({"llama-3m", {base}}, "cpu", *cpu.catalogue);
    text += planned({"llama-3m", {base, "train.accumulate=3"}}, "cpu", *cpu.catalogue);
  }
  for (const char* recipe : {"bf16", "coat", "coat-fast"}) {
    const std::string base = std::string("recipe.base=") + recipe;
    text += planned({"llama-2-7b", {base, "model.layers=6"}}, "cuda", *gpu.catalogue);
    text += planned({"olmo-1b", {base, "model.layers=4", "train.accumulate=4"}}, "cuda",
                    *gpu.catalogue);
  }
  const std::vector<std::string> saving = {"recipe.base=coat", "train.recompute=full",
                                           "optim.clip=0"};
  text += planned({"llama-1.2b", saving}, "cuda", *gpu.catalogue);
  text += planned({"llama-124m", saving}, "cuda deterministic", *strict.catalogue);
  test::expect_golden("frozen/planned.txt", text);
}

}  // namespace
}  // namespace octet::frozen_planned_test
