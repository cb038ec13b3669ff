// The plan of the 7B shape: what layers keep, which products read codes, what states take. Nothing
// is executed.
#include <gtest/gtest.h>

#include <chrono>

#include "config/load.h"
#include "plan/report.h"
#include "property/recipes/tiny_training.h"
#include "train/run_setup.h"

namespace octet::recipes_plan_7b_test {
namespace {

constexpr int64_t kHidden = 4096, kSeq = 2048;
constexpr double kU = kSeq * kHidden * 2.0;  // bytes

ProgramOptions options_7b(std::string_view recipe, int layers) {
  const std::string text = fmt::format(
      "model: {{kind: llama, hidden: 4096, layers: {}, heads: 32, kv_heads: 32, ffn: 11008, "
      "vocab: 32000, seq: 2048}}\nrecipe: {}\ntrain: {{batch: 1}}\n",
      layers, recipe);
  const RunConfig config = parse_config(text, "7b.yaml", {}).config;
  return program_options(config, model_from_config(posix_files(), config));
}

double kept_in_u(const ProgramOptions& options) {
  Program program(options, *tiny::backend().catalogue);
  const auto kept = kept_per_layer(program.plan(function::step).graph);
  EXPECT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0], kept[1]);
  return static_cast<double>(kept[0]) / kU;
}

TEST(Plan7b, coat_keeps_at_most_8_3_u) {
  EXPECT_LE(kept_in_u(options_7b("coat", 2)), 8.3);
}

TEST(Plan7b, bf16_keeps_16_u_and_less_with_the_recompute_of_coat) {
  ProgramOptions options = options_7b("bf16", 2);
  const double kept = kept_in_u(options);
  EXPECT_GE(kept, 16.0);
  EXPECT_LE(kept, 16.3);
  options.recompute = find_recipe("coat").recompute;
  EXPECT_LE(kept_in_u(options), 11.6);
  options.recompute = Recompute::full;
  EXPECT_LE(kept_in_u(options), 1.01);  // the layer's input
}

TEST(Plan7b, layers_multiply_codes_only) {
  constexpr int kLayers = 2;
  for (const char* recipe : {"coat", "fp8_linear", "hif8"}) {
    Program program(options_7b(recipe, kLayers), *tiny::backend().catalogue);
    int64_t n_codes = 0;
    for (const auto& [name, count] : count_ops(program.plan(function::step).graph, true)) {
      if (name.rfind("gemm", 0) != 0) continue;
      EXPECT_EQ(name.find("bf16"), std::string::npos) << recipe << " " << name << " " << count;
      n_codes += count;
    }
    EXPECT_EQ(n_codes, 7 * 3 * kLayers) << recipe;
  }
}

TEST(Plan7b, without_clipping_gradients_live_until_their_update_only) {
  ProgramOptions options = options_7b("coat", 8);
  const auto gradients_at_peak = [](const ProgramOptions& o) {
    Program program(o, *tiny::backend().catalogue);
    const MemoryReport report = report_memory(program.plan(function::step));
    return report.by_role[static_cast<size_t>(MemoryRole::gradients)];
  };
  const int64_t all = gradients_at_peak(options);
  options.optim.clipping = Clipping::none;
  const int64_t released = gradients_at_peak(options);
  // Embedding, head and two linears of one layer at most.
  EXPECT_GT(all, int64_t{8} * 200'000'000 * 2);
  EXPECT_LT(released, int64_t{2} * (32000 * 4096 * 2 + 2 * 11008 * 4096));
}

TEST(Plan7b, roles_sum_to_the_peak) {
  for (const Recipe* recipe : all_recipes()) {
    for (const int accumulate : {1, 2}) {
      ProgramOptions options = options_7b(recipe->name, 2);
      options.accumulate = accumulate;
      Program program(options, *tiny::backend().catalogue);
      for (const std::string_view name : program.train_functions()) {
        const Plan& plan = program.plan(name);
        const MemoryReport report = report_memory(plan);
        int64_t sum = 0;
        for (const int64_t bytes : report.by_role) sum += bytes;
        EXPECT_EQ(sum, plan.peak_bytes()) << recipe->name << " " << name;
        // Gaps between buffers stay small.
        const auto other = report.by_role[static_cast<size_t>(MemoryRole::other)];
        EXPECT_LE(static_cast<double>(other), 0.05 * static_cast<double>(sum))
            << recipe->name << " " << name;
      }
    }
  }
}

TEST(Plan7b, a_plan_of_32_layers_takes_less_than_two_seconds) {
  for (const Recipe* recipe : all_recipes()) {
    const auto begin = std::chrono::steady_clock::now();
    Program program(options_7b(recipe->name, 32), *tiny::backend().catalogue);
    program.planned_bytes();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(time.count(), 2) << recipe->name;
  }
}

TEST(Plan7b, eight_bit_moments_take_at_most_2_07_bytes_a_parameter) {
  Program program(options_7b("coat", 32), *tiny::backend().catalogue);
  int64_t bytes = 0, params = 0;
  for (const auto& [name, slot] : program.layout().slots) {
    if (slot.kind == InputKind::parameter) params += slot.type.n_elems();
    if (name.rfind("adam_", 0) == 0) bytes += slot.type.n_bytes();
  }
  EXPECT_GT(params, 6'700'000'000);
  EXPECT_LE(static_cast<double>(bytes) / static_cast<double>(params), 2.07);
  EXPECT_GE(static_cast<double>(bytes) / static_cast<double>(params), 2.0);
}

}  // namespace
}  // namespace octet::recipes_plan_7b_test
